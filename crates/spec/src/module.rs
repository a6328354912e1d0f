//! The modules in which other servers have types of values that are built in here: their names and versions, which
//! clients look for in HELLO, MODULE LIST and COMMAND DOCS. Must not know handlers, nor how a reply is rendered.

use crate::{Categories, Flags, Row, table};

/// A module, as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module {
    /// Name.
    pub name: &'static str,
    /// Version: a decimal digit or two for each of its parts, 80202 for 8.2.2.
    pub version: u32,
    /// Categories of its commands; none for that whose commands are in none.
    categories: Categories,
}

/// Every module whose commands have a category, and the one whose commands have none. A type's commands are of the module
/// that has one of their categories.
const MODULES: [Module; 11] = [
    module("vectorset", 1, Categories::NONE),
    module("ReJSON", 80_202, Categories::JSON),
    module(
        "bf",
        80_200,
        Categories::BLOOM
            .with(Categories::CUCKOO)
            .with(Categories::CMS)
            .with(Categories::TOPK)
            .with(Categories::TDIGEST),
    ),
    module("timeseries", 80_200, Categories::TIMESERIES),
    module("exstrtype", 1, Categories::TAIRSTRING),
    module("tairhash", 1, Categories::TAIRHASH),
    module("tairzset", 1, Categories::TAIRZSET),
    module("tairgis", 1, Categories::TAIRGIS),
    module("tairts", 1, Categories::TAIRTS),
    module("taircpc", 1, Categories::TAIRCPC),
    module("tairroaring", 1, Categories::TAIRROARING),
];

const fn module(name: &'static str, version: u32, categories: Categories) -> Module {
    Module {
        name,
        version,
        categories,
    }
}

/// The modules that have a command here.
static PRESENT: [bool; MODULES.len()] = present();

const fn present() -> [bool; MODULES.len()] {
    let rows = &table::ROWS;
    let mut present = [false; MODULES.len()];
    let mut at = 0;
    while at < rows.len() {
        if let Some(module) = place_of(rows[at].flags, rows[at].acl) {
            present[module] = true;
        }
        at += 1;
    }
    present
}

const fn place_of(flags: Flags, categories: Categories) -> Option<usize> {
    if !flags.has(Flags::MODULE) {
        return None;
    }
    let mut at = 1;
    while at < MODULES.len() {
        if MODULES[at].categories.meets(categories) {
            return Some(at);
        }
        at += 1;
    }
    Some(0)
}

impl Module {
    /// Returns the module in which other servers have a command; `None` for a command of Redis itself.
    pub fn of(row: &Row) -> Option<&'static Module> {
        place_of(row.flags, row.acl).map(|at| &MODULES[at])
    }

    /// Returns the modules of the commands that there are.
    pub fn all() -> impl Iterator<Item = &'static Module> + Clone {
        let modules = MODULES.iter().zip(&PRESENT);
        modules.filter_map(|(module, present)| present.then_some(module))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CommandId;

    #[test]
    fn a_command_has_the_module_of_its_category() {
        let vadd = table::row(CommandId::Vadd);
        assert_eq!(
            Module::of(vadd).map(|module| module.name),
            Some("vectorset")
        );
        assert_eq!(Module::of(table::row(CommandId::Get)), None);
        for row in table::all()
            .iter()
            .filter(|row| row.flags.has(Flags::MODULE))
        {
            let module = Module::of(row).expect("each has one");
            assert!(
                Module::all().any(|present| present == module),
                "{}",
                row.full_name
            );
        }
    }

    #[test]
    fn every_category_of_a_type_without_a_place_in_redis_has_one_module() {
        let own = Categories::ALL.iter().map(|(category, _)| *category);
        let own = own.skip_while(|category| *category != Categories::JSON);
        for category in own.filter(|category| *category != Categories::TAIR) {
            let modules = MODULES
                .iter()
                .filter(|module| module.categories.meets(category));
            assert_eq!(modules.count(), 1, "{category:?}");
        }
    }
}
