//! Families of redis_exporter whose values are fields of INFO: a row says which field, and under which name. Must not know
//! how a field is made.

use std::collections::HashMap;

use redline_observe::metrics::{Page, Sort};

/// Sections of INFO with the fields of the table.
pub(crate) const SECTIONS: [&str; 6] = [
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
];

/// Form of a field's text.
#[derive(Clone, Copy)]
enum Form {
    /// A number.
    Number,
    /// A number of microseconds, shown as seconds.
    Microseconds,
    /// `ok` is 1; anything else is 0.
    Status,
}
use Form::{Microseconds, Number, Status};
use Sort::{Counter, Gauge};

/// A field of INFO, the family's name and type, the field's form, and the help.
type Row = (&'static str, &'static str, Sort, Form, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("client_recent_max_input_buffer", "redis_client_recent_max_input_buffer_bytes", Gauge, Number, "Largest query buffer of a client."),
    ("client_recent_max_output_buffer", "redis_client_recent_max_output_buffer_bytes", Gauge, Number, "Most replies that wait for one client."),
    ("clients_in_timeout_table", "redis_clients_in_timeout_table", Gauge, Number, "Clients in a blocking command with a time-out."),
    ("cluster_connections", "redis_cluster_connections", Gauge, Number, "Connections of a cluster bus; there is none."),
    ("used_memory_dataset", "redis_memory_used_dataset_bytes", Gauge, Number, "Memory of keys and values."),
    ("used_memory_overhead", "redis_memory_used_overhead_bytes", Gauge, Number, "Memory of tables."),
    ("used_memory_startup", "redis_memory_used_startup_bytes", Gauge, Number, "Memory of an empty keyspace."),
    ("used_memory_lua", "redis_memory_used_lua_bytes", Gauge, Number, "Heaps of the interpreters of scripts."),
    ("mem_fragmentation_ratio", "redis_mem_fragmentation_ratio", Gauge, Number, "Resident memory of the process in relation to used memory."),
    ("mem_fragmentation_bytes", "redis_mem_fragmentation_bytes", Gauge, Number, "Resident memory of the process above used memory."),
    ("allocator_allocated", "redis_allocator_allocated_bytes", Gauge, Number, "Bytes of objects in the arenas."),
    ("allocator_active", "redis_allocator_active_bytes", Gauge, Number, "Memory that the arenas have taken."),
    ("allocator_resident", "redis_allocator_resident_bytes", Gauge, Number, "Memory that the arenas have taken and may be resident."),
    ("allocator_frag_ratio", "redis_allocator_frag_ratio", Gauge, Number, "Memory that the arenas have taken in relation to their objects."),
    ("allocator_frag_bytes", "redis_allocator_frag_bytes", Gauge, Number, "Memory that the arenas have taken above their objects."),
    ("allocator_rss_ratio", "redis_allocator_rss_ratio", Gauge, Number, "Constant: memory of the arenas is resident."),
    ("allocator_rss_bytes", "redis_allocator_rss_bytes", Gauge, Number, "Constant: memory of the arenas is resident."),
    ("mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes", Gauge, Number, "Used memory that maxmemory does not limit."),
    ("mem_clients_slaves", "redis_mem_clients_slaves", Gauge, Number, "Memory of the stream that waits for replicas above the backlog."),
    ("number_of_cached_scripts", "redis_number_of_cached_scripts", Gauge, Number, "Scripts in the cache."),
    ("lazyfree_pending_objects", "redis_lazyfree_pending_objects", Gauge, Number, "Deleted values whose memory is not free yet."),
    ("active_defrag_running", "redis_active_defrag_running", Gauge, Number, "A walk gives memory back; always 0 here."),
    ("loading", "redis_loading_dump_file", Gauge, Number, "Data is being loaded."),
    ("rdb_changes_since_last_save", "redis_rdb_changes_since_last_save", Gauge, Number, "Changes since the last snapshot."),
    ("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress", Gauge, Number, "A snapshot is being written."),
    ("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds", Gauge, Number, "Time of the last snapshot, as Unix time."),
    ("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status", Gauge, Status, "The last snapshot was written."),
    ("rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec", Gauge, Number, "Duration of the last snapshot; -1 without one."),
    ("rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec", Gauge, Number, "Duration so far of the current snapshot; -1 without one."),
    ("rdb_last_cow_size", "redis_rdb_last_cow_size_bytes", Gauge, Number, "Constant: nothing forks."),
    ("aof_enabled", "redis_aof_enabled", Gauge, Number, "There is an append-only file."),
    ("aof_rewrite_in_progress", "redis_aof_rewrite_in_progress", Gauge, Number, "The append-only file is being rewritten."),
    ("aof_rewrite_scheduled", "redis_aof_rewrite_scheduled", Gauge, Number, "A rewrite follows the current snapshot."),
    ("aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec", Gauge, Number, "Duration of the last rewrite; -1 without one."),
    ("aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec", Gauge, Number, "Duration so far of the current rewrite; -1 without one."),
    ("aof_last_cow_size", "redis_aof_last_cow_size_bytes", Gauge, Number, "Constant: nothing forks."),
    ("aof_current_size", "redis_aof_current_size_bytes", Gauge, Number, "Size of the append-only file."),
    ("aof_base_size", "redis_aof_base_size_bytes", Gauge, Number, "Its size after the last rewrite or start."),
    ("aof_pending_rewrite", "redis_aof_pending_rewrite", Gauge, Number, "A rewrite is due."),
    ("aof_buffer_length", "redis_aof_buffer_length", Gauge, Number, "Bytes that are not written to the append-only file yet."),
    ("aof_pending_bio_fsync", "redis_aof_pending_bio_fsync", Gauge, Number, "Syncs of the append-only file that wait."),
    ("aof_delayed_fsync", "redis_aof_delayed_fsync", Gauge, Number, "Writes that waited for a sync."),
    ("aof_last_bgrewrite_status", "redis_aof_last_bgrewrite_status", Gauge, Status, "The last rewrite was done."),
    ("aof_last_write_status", "redis_aof_last_write_status", Gauge, Status, "The last write to the append-only file was done."),
    ("connected_slaves", "redis_connected_slaves", Gauge, Number, "Replicas that are connected."),
    ("repl_backlog_size", "redis_replication_backlog_bytes", Gauge, Number, "Size of the replication backlog."),
    ("repl_backlog_active", "redis_repl_backlog_is_active", Gauge, Number, "There is a replication backlog."),
    ("repl_backlog_first_byte_offset", "redis_repl_backlog_first_byte_offset", Gauge, Number, "Offset at which the backlog begins."),
    ("repl_backlog_histlen", "redis_repl_backlog_history_bytes", Gauge, Number, "Bytes in the backlog."),
    ("master_repl_offset", "redis_master_repl_offset", Gauge, Number, "Offset of the replication stream."),
    ("second_repl_offset", "redis_second_repl_offset", Gauge, Number, "Offset up to which the former replication id is valid."),
    ("sync_full", "redis_replica_resyncs_full", Gauge, Number, "Full synchronisations of replicas."),
    ("sync_partial_ok", "redis_replica_partial_resync_accepted", Gauge, Number, "Partial synchronisations of replicas."),
    ("sync_partial_err", "redis_replica_partial_resync_denied", Gauge, Number, "Partial synchronisations that were refused."),
    ("slave_priority", "redis_slave_priority", Gauge, Number, "Priority of this replica in a failover."),
    ("expired_stale_perc", "redis_expired_stale_percentage", Gauge, Number, "Constant: keys that are due are known, not estimated."),
    ("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total", Gauge, Number, "Slices of active expiry that left keys due."),
    ("latest_fork_usec", "redis_latest_fork_seconds", Gauge, Microseconds, "Constant: nothing forks."),
    ("migrate_cached_sockets", "redis_migrate_cached_sockets_total", Gauge, Number, "Connections kept for MIGRATE."),
    ("slave_expires_tracked_keys", "redis_slave_expires_tracked_keys", Gauge, Number, "Keys with an expiry that clients of a writable replica wrote."),
    ("tracking_total_keys", "redis_tracking_total_keys", Gauge, Number, "Keys that clients track."),
    ("tracking_total_items", "redis_tracking_total_items", Gauge, Number, "Pairs of a tracked key and a client."),
    ("tracking_total_prefixes", "redis_tracking_total_prefixes", Gauge, Number, "Prefixes that clients track."),
    ("unexpected_error_replies", "redis_unexpected_error_replies", Counter, Number, "Effects from a primary or a file that were refused."),
    ("dump_payload_sanitizations", "redis_dump_payload_sanitizations", Counter, Number, "Constant: every payload is checked."),
    ("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total", Counter, Number, "CPU time of child processes in the kernel; nothing forks."),
    ("used_cpu_user_children", "redis_cpu_user_children_seconds_total", Counter, Number, "CPU time of child processes; nothing forks."),
];

/// Families of a replica, with the primary's address as labels.
#[rustfmt::skip]
const OF_REPLICA: &[Row] = &[
    ("master_link_status", "redis_master_link_up", Gauge, Status, "The link to the primary is up."),
    ("master_last_io_seconds_ago", "redis_master_last_io_seconds_ago", Gauge, Number, "Time since the primary was last heard; -1 without a link."),
    ("master_sync_in_progress", "redis_master_sync_in_progress", Gauge, Number, "A full synchronisation is on its way."),
    ("slave_repl_offset", "redis_slave_repl_offset", Gauge, Number, "Offset up to which the stream is applied."),
];

/// Writes the families of the table, from the text of INFO.
pub(crate) fn write(page: &mut Page, info: &str) {
    let fields: HashMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    for row in ROWS {
        family(page, row, &fields, &[]);
    }
    if let (Some(host), Some(port)) = (fields.get("master_host"), fields.get("master_port")) {
        let labels = [("master_host", *host), ("master_port", *port)];
        for row in OF_REPLICA {
            family(page, row, &fields, &labels);
        }
        let name = "redis_slave_info";
        page.family(
            name,
            Gauge,
            "Whom this replica follows, and if it takes no writes.",
        );
        let read_only = fields.get("slave_read_only").copied().unwrap_or("");
        page.sample(name, &[labels[0], labels[1], ("read_only", read_only)], 1);
    }
    replicas(page, info);
}

fn family(page: &mut Page, row: &Row, fields: &HashMap<&str, &str>, labels: &[(&str, &str)]) {
    let &(field, name, sort, form, help) = row;
    if let Some(value) = fields.get(field).and_then(|text| value(form, text)) {
        page.family(name, sort, help);
        page.sample(name, labels, value);
    }
}

fn value(form: Form, text: &str) -> Option<f64> {
    match form {
        Form::Number => text.parse().ok(),
        Form::Microseconds => text.parse().ok().map(|us: f64| us / 1e6),
        // `up` of a link.
        Form::Status => Some(f64::from(u8::from(matches!(text, "ok" | "up")))),
    }
}

/// Writes the replicas of this server, by their lines of INFO: `slave0:ip=…,port=…,state=…,offset=…,lag=…`.
fn replicas(page: &mut Page, info: &str) {
    let parts = |line: &str| -> Option<HashMap<String, String>> {
        let (name, rest) = line.trim_end().split_once(':')?;
        let number = name.strip_prefix("slave")?;
        number.parse::<u32>().ok()?;
        let pairs = rest.split(',').filter_map(|pair| pair.split_once('='));
        Some(pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    };
    let all: Vec<_> = info.lines().filter_map(parts).collect();
    for (name, part, help) in [
        (
            "redis_connected_slave_offset_bytes",
            "offset",
            "Offset that a replica has acknowledged.",
        ),
        (
            "redis_connected_slave_lag_seconds",
            "lag",
            "Time since a replica was last heard.",
        ),
    ] {
        if all.is_empty() {
            continue;
        }
        page.family(name, Sort::Gauge, help);
        for replica in &all {
            let of = |part: &str| replica.get(part).map_or("", String::as_str);
            // Labels are named as the parts of the line, behind a prefix.
            let labels = ["slave_ip", "slave_port", "slave_state"]
                .map(|label| (label, of(label.trim_start_matches("slave_"))));
            page.sample(name, &labels, of(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_samples_and_those_of_no_row_are_left_out() {
        let mut page = Page::default();
        write(
            &mut page,
            "# Memory\r\nused_memory_lua:5\r\nused_memory_lua_human:5B\r\naof_last_write_status:ok\r\nlatest_fork_usec:250000\r\n",
        );
        assert!(page.text.contains("\nredis_memory_used_lua_bytes 5\n"));
        assert!(page.text.contains("\nredis_aof_last_write_status 1\n"));
        assert!(page.text.contains("\nredis_latest_fork_seconds 0.25\n"));
        assert_eq!(page.text.matches("# TYPE").count(), 3, "{}", page.text);
    }

    #[test]
    fn a_replica_names_its_primary_and_a_primary_its_replicas() {
        let mut page = Page::default();
        write(
            &mut page,
            "role:slave\r\nmaster_host:h\r\nmaster_port:7\r\nmaster_link_status:down\r\nslave_read_only:1\r\nslave0:ip=1.2.3.4,port=8,state=online,offset=90,lag=1\r\n",
        );
        for line in [
            "redis_slave_info{master_host=\"h\",master_port=\"7\",read_only=\"1\"} 1\n",
            "redis_master_link_up{master_host=\"h\",master_port=\"7\"} 0\n",
            "redis_connected_slave_offset_bytes{slave_ip=\"1.2.3.4\",slave_port=\"8\",slave_state=\"online\"} 90\n",
        ] {
            assert!(page.text.contains(line), "{line}: {}", page.text);
        }
    }

    #[test]
    fn no_family_has_two_rows() {
        let mut names: Vec<_> = ROWS.iter().chain(OF_REPLICA).map(|row| row.1).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
