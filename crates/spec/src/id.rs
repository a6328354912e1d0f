//! The list of commands (the roll): every command's number, and the module and name of its handler.
//!
//! Each plane has a macro that passes its part of the list to a macro of the caller, as `(Id, module::handler)` pairs:
//!
//! ```
//! use redline_spec::CommandId;
//!
//! macro_rules! names {
//!     ($(($id:ident, $module:ident :: $handler:ident),)*) => {
//!         [$((CommandId::$id, concat!(stringify!($module), "::", stringify!($handler)))),*]
//!     };
//! }
//!
//! let data = redline_spec::for_each_data_command!(names);
//! assert!(data.contains(&(CommandId::Getrange, "string::getrange")));
//! ```
//!
//! A crate that binds handlers this way does not compile while one of them is missing. A handler has the name of its
//! command in snake case (`type_` and `move_`, where the word is reserved in Rust), its module that of the command's
//! group, with these exceptions: commands of the group `server` that work on keys are bound in `generic`, and
//! PFSELFTEST, which works on none, in `server`; SORT, ACL, CLIENT, CONFIG and COMMAND have modules of their own, and
//! so have MIGRATE (`migrate`), consumer groups (`xgroup`), XINFO, the expiry of hash fields (`hash_expiry`), and DUMP with RESTORE
//! (`dump`); vector sets are bound in `vector_set`, Tair's types in `ex_string`, `ex_hash` and `ex_zset`, JSON documents in
//! `json`; and all other HELP subcommands share the handler `command::help`, whose text comes from the rows.

use crate::Plane;

macro_rules! roll {
    (
        ($dollar:tt)
        data { $($data:ident => $data_module:ident :: $data_handler:ident,)* }
        session { $($session:ident => $session_module:ident :: $session_handler:ident,)* }
        admin { $($admin:ident => $admin_module:ident :: $admin_handler:ident,)* }
        containers { $($container:ident,)* }
    ) => {
        /// Number of a command or subcommand: dense, from 0 to [`CommandId::COUNT`].
        ///
        /// A variant has the name of its command: `CONFIG GET` is `ConfigGet`, `ZRANGEBYSCORE` is `Zrangebyscore`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[allow(missing_docs)] // a variant is its command: its row documents it
        pub enum CommandId { $($data,)* $($session,)* $($admin,)* $($container,)* }

        impl CommandId {
            /// Every command, in order.
            pub const ALL: [CommandId; CommandId::COUNT] = [
                $(CommandId::$data,)* $(CommandId::$session,)* $(CommandId::$admin,)* $(CommandId::$container,)*
            ];

            /// Number of commands.
            pub const COUNT: usize = [
                $(stringify!($data),)* $(stringify!($session),)* $(stringify!($admin),)* $(stringify!($container),)*
            ].len();

            pub(crate) const fn plane(self) -> Plane {
                match self {
                    $(CommandId::$data)|* => Plane::Data,
                    $(CommandId::$session)|* => Plane::Session,
                    $(CommandId::$admin)|* => Plane::Admin,
                    $(CommandId::$container)|* => Plane::Container,
                }
            }
        }

        /// Passes `(Id, module::handler),` for every command of the data plane to the macro named.
        #[macro_export]
        macro_rules! for_each_data_command {
            ($dollar($dollar callback:tt)+) => {
                $dollar($dollar callback)+! { $(($data, $data_module::$data_handler),)* }
            };
        }

        /// Passes `(Id, module::handler),` for every command of the session plane to the macro named.
        #[macro_export]
        macro_rules! for_each_session_command {
            ($dollar($dollar callback:tt)+) => {
                $dollar($dollar callback)+! { $(($session, $session_module::$session_handler),)* }
            };
        }

        /// Passes `(Id, module::handler),` for every command of the admin plane to the macro named.
        #[macro_export]
        macro_rules! for_each_admin_command {
            ($dollar($dollar callback:tt)+) => {
                $dollar($dollar callback)+! { $(($admin, $admin_module::$admin_handler),)* }
            };
        }
    };
}

roll! {
    ($)
    data {
        Append => string::append,
        Decr => string::decr,
        Decrby => string::decrby,
        Delex => string::delex,
        Delifeq => string::delifeq,
        Digest => string::digest,
        Get => string::get,
        Getdel => string::getdel,
        Getex => string::getex,
        Getrange => string::getrange,
        Getset => string::getset,
        Incr => string::incr,
        Incrby => string::incrby,
        Incrbyfloat => string::incrbyfloat,
        Lcs => string::lcs,
        Mget => string::mget,
        Mset => string::mset,
        Msetex => string::msetex,
        Msetnx => string::msetnx,
        Psetex => string::psetex,
        Set => string::set,
        Setex => string::setex,
        Setnx => string::setnx,
        Setrange => string::setrange,
        Strlen => string::strlen,
        Substr => string::substr,

        Bitcount => bitmap::bitcount,
        Bitfield => bitmap::bitfield,
        BitfieldRo => bitmap::bitfield_ro,
        Bitop => bitmap::bitop,
        Bitpos => bitmap::bitpos,
        Getbit => bitmap::getbit,
        Setbit => bitmap::setbit,

        Pfadd => hyperloglog::pfadd,
        Pfcount => hyperloglog::pfcount,
        Pfdebug => hyperloglog::pfdebug,
        Pfmerge => hyperloglog::pfmerge,

        Geoadd => geo::geoadd,
        Geodist => geo::geodist,
        Geohash => geo::geohash,
        Geopos => geo::geopos,
        Georadius => geo::georadius,
        GeoradiusRo => geo::georadius_ro,
        Georadiusbymember => geo::georadiusbymember,
        GeoradiusbymemberRo => geo::georadiusbymember_ro,
        Geosearch => geo::geosearch,
        Geosearchstore => geo::geosearchstore,

        Copy => generic::copy,
        Dump => dump::dump,
        Restore => dump::restore,
        RestoreAsking => dump::restore,
        Del => generic::del,
        Exists => generic::exists,
        Expire => generic::expire,
        Expireat => generic::expireat,
        Expiretime => generic::expiretime,
        Keys => generic::keys,
        Move => generic::move_,
        ObjectEncoding => generic::object_encoding,
        ObjectFreq => generic::object_freq,
        ObjectIdletime => generic::object_idletime,
        ObjectRefcount => generic::object_refcount,
        Persist => generic::persist,
        Pexpire => generic::pexpire,
        Pexpireat => generic::pexpireat,
        Pexpiretime => generic::pexpiretime,
        Pttl => generic::pttl,
        Randomkey => generic::randomkey,
        Rename => generic::rename,
        Renamenx => generic::renamenx,
        Scan => generic::scan,
        Sort => sort::sort,
        SortRo => sort::sort_ro,
        Touch => generic::touch,
        Ttl => generic::ttl,
        Type => generic::type_,
        Unlink => generic::unlink,
        Dbsize => generic::dbsize,
        Flushall => generic::flushall,
        Flushdb => generic::flushdb,
        MemoryUsage => generic::memory_usage,
        Swapdb => generic::swapdb,

        Blmove => list::blmove,
        Blmpop => list::blmpop,
        Blpop => list::blpop,
        Brpop => list::brpop,
        Brpoplpush => list::brpoplpush,
        Lindex => list::lindex,
        Linsert => list::linsert,
        Llen => list::llen,
        Lmove => list::lmove,
        Lmpop => list::lmpop,
        Lpop => list::lpop,
        Lpos => list::lpos,
        Lpush => list::lpush,
        Lpushx => list::lpushx,
        Lrange => list::lrange,
        Lrem => list::lrem,
        Lset => list::lset,
        Ltrim => list::ltrim,
        Rpop => list::rpop,
        Rpoplpush => list::rpoplpush,
        Rpush => list::rpush,
        Rpushx => list::rpushx,

        Hdel => hash::hdel,
        Hexists => hash::hexists,
        Hexpire => hash_expiry::hexpire,
        Hexpireat => hash_expiry::hexpireat,
        Hexpiretime => hash_expiry::hexpiretime,
        Hget => hash::hget,
        Hgetall => hash::hgetall,
        Hgetdel => hash_expiry::hgetdel,
        Hgetex => hash_expiry::hgetex,
        Hincrby => hash::hincrby,
        Hincrbyfloat => hash::hincrbyfloat,
        Hkeys => hash::hkeys,
        Hlen => hash::hlen,
        Hmget => hash::hmget,
        Hmset => hash::hmset,
        Hpersist => hash_expiry::hpersist,
        Hpexpire => hash_expiry::hpexpire,
        Hpexpireat => hash_expiry::hpexpireat,
        Hpexpiretime => hash_expiry::hpexpiretime,
        Hpttl => hash_expiry::hpttl,
        Hrandfield => hash::hrandfield,
        Hscan => hash::hscan,
        Hset => hash::hset,
        Hsetex => hash_expiry::hsetex,
        Hsetnx => hash::hsetnx,
        Hstrlen => hash::hstrlen,
        Httl => hash_expiry::httl,
        Hvals => hash::hvals,

        Sadd => set::sadd,
        Scard => set::scard,
        Sdiff => set::sdiff,
        Sdiffstore => set::sdiffstore,
        Sinter => set::sinter,
        Sintercard => set::sintercard,
        Sinterstore => set::sinterstore,
        Sismember => set::sismember,
        Smembers => set::smembers,
        Smismember => set::smismember,
        Smove => set::smove,
        Spop => set::spop,
        Srandmember => set::srandmember,
        Srem => set::srem,
        Sscan => set::sscan,
        Sunion => set::sunion,
        Sunionstore => set::sunionstore,

        Bzmpop => zset::bzmpop,
        Bzpopmax => zset::bzpopmax,
        Bzpopmin => zset::bzpopmin,
        Zadd => zset::zadd,
        Zcard => zset::zcard,
        Zcount => zset::zcount,
        Zdiff => zset::zdiff,
        Zdiffstore => zset::zdiffstore,
        Zincrby => zset::zincrby,
        Zinter => zset::zinter,
        Zintercard => zset::zintercard,
        Zinterstore => zset::zinterstore,
        Zlexcount => zset::zlexcount,
        Zmpop => zset::zmpop,
        Zmscore => zset::zmscore,
        Zpopmax => zset::zpopmax,
        Zpopmin => zset::zpopmin,
        Zrandmember => zset::zrandmember,
        Zrange => zset::zrange,
        Zrangebylex => zset::zrangebylex,
        Zrangebyscore => zset::zrangebyscore,
        Zrangestore => zset::zrangestore,
        Zrank => zset::zrank,
        Zrem => zset::zrem,
        Zremrangebylex => zset::zremrangebylex,
        Zremrangebyrank => zset::zremrangebyrank,
        Zremrangebyscore => zset::zremrangebyscore,
        Zrevrange => zset::zrevrange,
        Zrevrangebylex => zset::zrevrangebylex,
        Zrevrangebyscore => zset::zrevrangebyscore,
        Zrevrank => zset::zrevrank,
        Zscan => zset::zscan,
        Zscore => zset::zscore,
        Zunion => zset::zunion,
        Zunionstore => zset::zunionstore,

        Xack => xgroup::xack,
        Xackdel => xgroup::xackdel,
        Xadd => stream::xadd,
        Xautoclaim => xgroup::xautoclaim,
        Xclaim => xgroup::xclaim,
        Xdel => stream::xdel,
        Xdelex => stream::xdelex,
        XgroupCreate => xgroup::xgroup_create,
        XgroupCreateconsumer => xgroup::xgroup_createconsumer,
        XgroupDelconsumer => xgroup::xgroup_delconsumer,
        XgroupDestroy => xgroup::xgroup_destroy,
        XgroupSetid => xgroup::xgroup_setid,
        XinfoConsumers => xinfo::xinfo_consumers,
        XinfoGroups => xinfo::xinfo_groups,
        XinfoStream => xinfo::xinfo_stream,
        Xlen => stream::xlen,
        Xpending => xgroup::xpending,
        Xrange => stream::xrange,
        Xread => xread::xread,
        Xreadgroup => xgroup::xreadgroup,
        Xrevrange => stream::xrevrange,
        Xsetid => stream::xsetid,
        Xtrim => stream::xtrim,

        Vadd => vector_set::vadd,
        Vcard => vector_set::vcard,
        Vdim => vector_set::vdim,
        Vemb => vector_set::vemb,
        Vgetattr => vector_set::vgetattr,
        Vinfo => vector_set::vinfo,
        Vismember => vector_set::vismember,
        Vlinks => vector_set::vlinks,
        Vrandmember => vector_set::vrandmember,
        Vrem => vector_set::vrem,
        Vsetattr => vector_set::vsetattr,
        Vsim => vector_set::vsim,

        Cas => ex_string::cas,
        Cad => ex_string::cad,
        Exset => ex_string::exset,
        Exget => ex_string::exget,
        Exsetver => ex_string::exsetver,
        Exincrby => ex_string::exincrby,
        Exincrbyfloat => ex_string::exincrbyfloat,
        Excas => ex_string::excas,
        Excad => ex_string::excad,
        Exappend => ex_string::exappend,
        Exprepend => ex_string::exprepend,
        Exgae => ex_string::exgae,

        Exhset => ex_hash::exhset,
        Exhsetnx => ex_hash::exhsetnx,
        Exhmset => ex_hash::exhmset,
        Exhmsetwithopts => ex_hash::exhmsetwithopts,
        Exhget => ex_hash::exhget,
        Exhgetwithver => ex_hash::exhgetwithver,
        Exhmget => ex_hash::exhmget,
        Exhmgetwithver => ex_hash::exhmgetwithver,
        Exhgetall => ex_hash::exhgetall,
        Exhgetallwithver => ex_hash::exhgetallwithver,
        Exhkeys => ex_hash::exhkeys,
        Exhvals => ex_hash::exhvals,
        Exhdel => ex_hash::exhdel,
        Exhdelwithver => ex_hash::exhdelwithver,
        Exhlen => ex_hash::exhlen,
        Exhexists => ex_hash::exhexists,
        Exhstrlen => ex_hash::exhstrlen,
        Exhincrby => ex_hash::exhincrby,
        Exhincrbyfloat => ex_hash::exhincrbyfloat,
        Exhexpire => ex_hash::exhexpire,
        Exhpexpire => ex_hash::exhpexpire,
        Exhexpireat => ex_hash::exhexpireat,
        Exhpexpireat => ex_hash::exhpexpireat,
        Exhpersist => ex_hash::exhpersist,
        Exhttl => ex_hash::exhttl,
        Exhpttl => ex_hash::exhpttl,
        Exhver => ex_hash::exhver,
        Exhsetver => ex_hash::exhsetver,
        Exhscan => ex_hash::exhscan,

        Exzadd => ex_zset::exzadd,
        Exzincrby => ex_zset::exzincrby,
        Exzscore => ex_zset::exzscore,
        Exzmscore => ex_zset::exzmscore,
        Exzcard => ex_zset::exzcard,
        Exzrange => ex_zset::exzrange,
        Exzrevrange => ex_zset::exzrevrange,
        Exzrangebyscore => ex_zset::exzrangebyscore,
        Exzrevrangebyscore => ex_zset::exzrevrangebyscore,
        Exzrangebylex => ex_zset::exzrangebylex,
        Exzrevrangebylex => ex_zset::exzrevrangebylex,
        Exzrem => ex_zset::exzrem,
        Exzremrangebyscore => ex_zset::exzremrangebyscore,
        Exzremrangebyrank => ex_zset::exzremrangebyrank,
        Exzremrangebylex => ex_zset::exzremrangebylex,
        Exzrank => ex_zset::exzrank,
        Exzrevrank => ex_zset::exzrevrank,
        Exzrankbyscore => ex_zset::exzrankbyscore,
        Exzrevrankbyscore => ex_zset::exzrevrankbyscore,
        Exzcount => ex_zset::exzcount,
        Exzlexcount => ex_zset::exzlexcount,
        Exzrandmember => ex_zset::exzrandmember,
        Exzscan => ex_zset::exzscan,
        Exzunion => ex_zset::exzunion,
        Exzinter => ex_zset::exzinter,
        Exzdiff => ex_zset::exzdiff,
        Exzintercard => ex_zset::exzintercard,
        Exzunionstore => ex_zset::exzunionstore,
        Exzinterstore => ex_zset::exzinterstore,
        Exzdiffstore => ex_zset::exzdiffstore,
        Exzpopmin => ex_zset::exzpopmin,
        Exzpopmax => ex_zset::exzpopmax,
        Exbzpopmin => ex_zset::exbzpopmin,
        Exbzpopmax => ex_zset::exbzpopmax,

        JsonArrappend => json::json_arrappend,
        JsonArrindex => json::json_arrindex,
        JsonArrinsert => json::json_arrinsert,
        JsonArrlen => json::json_arrlen,
        JsonArrpop => json::json_arrpop,
        JsonArrtrim => json::json_arrtrim,
        JsonClear => json::json_clear,
        JsonDebugMemory => json::json_debug_memory,
        JsonDel => json::json_del,
        JsonForget => json::json_forget,
        JsonGet => json::json_get,
        JsonMerge => json::json_merge,
        JsonMget => json::json_mget,
        JsonMset => json::json_mset,
        JsonNumincrby => json::json_numincrby,
        JsonNummultby => json::json_nummultby,
        JsonNumpowby => json::json_numpowby,
        JsonObjkeys => json::json_objkeys,
        JsonObjlen => json::json_objlen,
        JsonResp => json::json_resp,
        JsonSet => json::json_set,
        JsonStrappend => json::json_strappend,
        JsonStrlen => json::json_strlen,
        JsonToggle => json::json_toggle,
        JsonType => json::json_type,
    }
    session {
        Discard => transaction::discard,
        Exec => transaction::exec,
        Multi => transaction::multi,
        Unwatch => transaction::unwatch,
        Watch => transaction::watch,

        Psubscribe => pubsub::psubscribe,
        Publish => pubsub::publish,
        PubsubChannels => pubsub::pubsub_channels,
        PubsubNumpat => pubsub::pubsub_numpat,
        PubsubNumsub => pubsub::pubsub_numsub,
        PubsubShardchannels => pubsub::pubsub_shardchannels,
        PubsubShardnumsub => pubsub::pubsub_shardnumsub,
        Punsubscribe => pubsub::punsubscribe,
        Spublish => pubsub::spublish,
        Ssubscribe => pubsub::ssubscribe,
        Subscribe => pubsub::subscribe,
        Sunsubscribe => pubsub::sunsubscribe,
        Unsubscribe => pubsub::unsubscribe,

        AclWhoami => acl::acl_whoami,

        Wait => replication::wait,
        Waitaof => replication::waitaof,

        Asking => cluster::asking,
        Readonly => cluster::readonly,
        Readwrite => cluster::readwrite,

        Auth => connection::auth,
        Echo => connection::echo,
        Hello => connection::hello,
        Ping => connection::ping,
        Quit => connection::quit,
        Reset => connection::reset,
        Select => connection::select,

        ClientCaching => tracking::client_caching,
        ClientCapa => client::client_capa,
        ClientGetname => client::client_getname,
        ClientGetredir => tracking::client_getredir,
        ClientId => client::client_id,
        ClientInfo => client::client_info,
        ClientKill => client::client_kill,
        ClientList => client::client_list,
        ClientNoEvict => client::client_no_evict,
        ClientNoTouch => client::client_no_touch,
        ClientPause => client::client_pause,
        ClientReply => client::client_reply,
        ClientSetinfo => client::client_setinfo,
        ClientSetname => client::client_setname,
        ClientTracking => tracking::client_tracking,
        ClientTrackinginfo => tracking::client_trackinginfo,
        ClientUnblock => client::client_unblock,
        ClientUnpause => client::client_unpause,

        Eval => scripting::eval,
        EvalRo => scripting::eval_ro,
        Evalsha => scripting::evalsha,
        EvalshaRo => scripting::evalsha_ro,
        Fcall => scripting::fcall,
        FcallRo => scripting::fcall_ro,
        FunctionDelete => scripting::function_delete,
        FunctionDump => scripting::function_dump,
        FunctionFlush => scripting::function_flush,
        FunctionKill => scripting::function_kill,
        FunctionList => scripting::function_list,
        FunctionLoad => scripting::function_load,
        FunctionRestore => scripting::function_restore,
        FunctionStats => scripting::function_stats,
        ScriptDebug => scripting::script_debug,
        ScriptExists => scripting::script_exists,
        ScriptFlush => scripting::script_flush,
        ScriptKill => scripting::script_kill,
        ScriptLoad => scripting::script_load,
        ScriptShow => scripting::script_show,
    }
    admin {
        AclCat => acl::acl_cat,
        AclDeluser => acl::acl_deluser,
        AclDryrun => acl::acl_dryrun,
        AclGenpass => acl::acl_genpass,
        AclGetuser => acl::acl_getuser,
        AclHelp => command::help,
        AclList => acl::acl_list,
        AclLoad => acl::acl_load,
        AclLog => acl::acl_log,
        AclSave => acl::acl_save,
        AclSetuser => acl::acl_setuser,
        AclUsers => acl::acl_users,

        JsonDebugHelp => command::help,
        ObjectHelp => command::help,
        PubsubHelp => command::help,
        ClientHelp => command::help,
        ScriptHelp => command::help,
        FunctionHelp => command::help,
        XgroupHelp => command::help,
        XinfoHelp => command::help,
        Command => command::command,
        CommandCount => command::command_count,
        CommandDocs => command::command_docs,
        CommandGetkeys => command::command_getkeys,
        CommandGetkeysandflags => command::command_getkeysandflags,
        CommandHelp => command::help,
        CommandInfo => command::command_info,
        CommandList => command::command_list,
        CommandlogHelp => command::help,
        ConfigHelp => command::help,
        LatencyHelp => command::help,
        MemoryHelp => command::help,
        ModuleHelp => command::help,
        SlowlogHelp => command::help,

        ClusterAddslots => cluster::cluster_addslots,
        ClusterAddslotsrange => cluster::cluster_addslotsrange,
        ClusterBumpepoch => cluster::cluster_bumpepoch,
        ClusterCountFailureReports => cluster::cluster_count_failure_reports,
        ClusterCountkeysinslot => cluster::cluster_countkeysinslot,
        ClusterDelslots => cluster::cluster_delslots,
        ClusterDelslotsrange => cluster::cluster_delslotsrange,
        ClusterFailover => cluster::cluster_failover,
        ClusterFlushslots => cluster::cluster_flushslots,
        ClusterForget => cluster::cluster_forget,
        ClusterGetkeysinslot => cluster::cluster_getkeysinslot,
        ClusterHelp => cluster::cluster_help,
        ClusterInfo => cluster::cluster_info,
        ClusterKeyslot => cluster::cluster_keyslot,
        ClusterLinks => cluster::cluster_links,
        ClusterMeet => cluster::cluster_meet,
        ClusterMyid => cluster::cluster_myid,
        ClusterMyshardid => cluster::cluster_myshardid,
        ClusterNodes => cluster::cluster_nodes,
        ClusterReplicas => cluster::cluster_replicas,
        ClusterReplicate => cluster::cluster_replicate,
        ClusterReset => cluster::cluster_reset,
        ClusterSaveconfig => cluster::cluster_saveconfig,
        ClusterSetConfigEpoch => cluster::cluster_set_config_epoch,
        ClusterSetslot => cluster::cluster_setslot,
        ClusterShards => cluster::cluster_shards,
        ClusterSlaves => cluster::cluster_slaves,
        ClusterSlotStats => cluster::cluster_slot_stats,
        ClusterSlots => cluster::cluster_slots,

        CommandlogGet => commandlog::commandlog_get,
        CommandlogLen => commandlog::commandlog_len,
        CommandlogReset => commandlog::commandlog_reset,
        SlowlogGet => commandlog::slowlog_get,
        SlowlogLen => commandlog::slowlog_len,
        SlowlogReset => commandlog::slowlog_reset,

        LatencyDoctor => latency::latency_doctor,
        LatencyGraph => latency::latency_graph,
        LatencyHistogram => latency::latency_histogram,
        LatencyHistory => latency::latency_history,
        LatencyLatest => latency::latency_latest,
        LatencyReset => latency::latency_reset,

        ConfigGet => config::config_get,
        ConfigResetstat => config::config_resetstat,
        ConfigRewrite => config::config_rewrite,
        ConfigSet => config::config_set,

        MemoryDoctor => memory::memory_doctor,
        MemoryMallocStats => memory::memory_malloc_stats,
        MemoryPurge => memory::memory_purge,
        MemoryStats => memory::memory_stats,

        Migrate => migrate::migrate,

        Bgrewriteaof => persistence::bgrewriteaof,
        Bgsave => persistence::bgsave,
        Lastsave => persistence::lastsave,
        Save => persistence::save,
        Shutdown => persistence::shutdown,

        Debug => debug::debug,
        Info => server::info,
        Lolwut => server::lolwut,
        ModuleList => server::module_list,
        Monitor => server::monitor,
        Pfselftest => server::pfselftest,
        Failover => failover::failover,
        Psync => replication::psync,
        Replconf => replication::replconf,
        Replicaof => replication::replicaof,
        Role => replication::role,
        Slaveof => replication::replicaof,
        Sync => replication::sync,
        Time => server::time,
    }
    containers {
        Acl,
        Client,
        Cluster,
        Commandlog,
        Config,
        Function,
        JsonDebug,
        Latency,
        Memory,
        Module,
        Object,
        Pubsub,
        Script,
        Slowlog,
        Xgroup,
        Xinfo,
    }
}
