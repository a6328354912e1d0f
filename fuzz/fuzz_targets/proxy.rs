//! The proxy between clients and a server that send anything, in any order, and leave when they like: nothing panics, no
//! client is left behind, and who asks another server is answered as ever.
//!
//! The input is read as a stream of choices: who sends what, who leaves. Two servers share the keys: one says what the
//! input says, the other answers every request with the same word.

#![no_main]

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use redline_fuzz::Choices;
use redline_resp::{Args, Decoded, RequestDecoder, RequestLimits};

const CLIENTS: usize = 3;
/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the second server answers to everything.
const WORD: &[u8] = b"$5\r\nhello\r\n";
/// A key of the second server.
const ITS_REQUEST: &[u8] = b"*2\r\n$3\r\nGET\r\n$3\r\nbar\r\n";

/// Requests that take every way there is; `foo` is a key of the first server.
const REQUESTS: [&str; 36] = [
    "GET foo",
    "SET foo v",
    "MGET foo bar {foo}a",
    "MSET foo 1 bar 2",
    "DEL foo bar",
    "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 foo",
    "EVAL return(1) 0",
    "SCRIPT LOAD return(1)",
    "SCRIPT EXISTS a",
    "BLPOP foo 0",
    "XREAD BLOCK 0 STREAMS foo 0",
    "MULTI",
    "INCR foo",
    "PING",
    "EXEC",
    "EXEC x",
    "DISCARD",
    "WATCH foo",
    "UNWATCH",
    "SUBSCRIBE foo c",
    "PSUBSCRIBE c*",
    "SSUBSCRIBE foo",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "PUBLISH foo m",
    "HELLO 3",
    "HELLO 2",
    "SELECT 1",
    "RESET",
    "SCAN 0",
    "DBSIZE",
    "KEYS *",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY OFF",
    "CLIENT LIST",
];

/// What servers say.
const REPLIES: [&str; 28] = [
    "+OK\r\n",
    "+QUEUED\r\n",
    ":1\r\n",
    "$1\r\nv\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "*2\r\n*-1\r\n:1\r\n",
    "*0\r\n",
    "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n",
    "_\r\n",
    "%1\r\n+a\r\n:1\r\n",
    "~1\r\n+a\r\n",
    ">3\r\n+message\r\n+c\r\n+m\r\n",
    "*3\r\n$9\r\nsubscribe\r\n$3\r\nfoo\r\n:1\r\n",
    "*3\r\n$7\r\nmessage\r\n$3\r\nfoo\r\n$1\r\nm\r\n",
    "*3\r\n$10\r\nssubscribe\r\n$3\r\nfoo\r\n:1\r\n",
    "*3\r\n$12\r\nsunsubscribe\r\n$3\r\nfoo\r\n:0\r\n",
    "-ERR no\r\n",
    "-NOSCRIPT No matching script.\r\n",
    "-MOVED 12182 127.0.0.1:1\r\n",
    "-ASK 12182 127.0.0.1:1\r\n",
    "-TRYAGAIN x\r\n",
    "-LOADING x\r\n",
    "-EXECABORT x\r\n",
    "*2147483647\r\n",
    "$536870912\r\n",
    "$99999999999999999999\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
];

/// The proxy, and what is on its two sides.
struct Table {
    proxy: SocketAddr,
    listener: TcpListener,
    bystander: TcpStream,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(|| Mutex::new(set()));

fn set() -> Table {
    let listener = listen();
    listener.set_nonblocking(true).expect("a listener");
    let honest = listen();
    let port = listen().local_addr().expect("an address").port();
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let folder = std::env::temp_dir().join(format!("redline-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("proxy.toml");
    let place = |listener: &TcpListener| listener.local_addr().expect("an address");
    // A server that fails as often as one here would be left alone.
    let text = format!(
        "threads = 1\n[[listener]]\nbind = '{proxy}'\n[[pool]]\nhash = 'crc16'\ndistribution = 'modula'\nrefresh = '60s'\n\
         [[pool.shard]]\nserver = [{{ address = '{}' }}]\n[[pool.shard]]\nserver = [{{ address = '{}' }}]\n\
         [pool.failure]\nlimit = 1000000000\nretry = '1ms'\nretry-max = '1ms'\n",
        place(&listener),
        place(&honest)
    );
    std::fs::write(&file, text).expect("a file");
    thread::spawn(move || {
        for stream in honest.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    let words = [OsString::from("proxy"), file.into_os_string()];
    thread::spawn(move || redline_proxy::main(words.into_iter().skip(1)));
    let until = Instant::now() + PATIENCE;
    let bystander = loop {
        match TcpStream::connect(proxy) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    bystander.set_read_timeout(Some(PATIENCE)).expect("a limit");
    bystander.set_nodelay(true).expect("an option");
    Table {
        proxy,
        listener,
        bystander,
    }
}

fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port")
}

/// The second server.
fn answer(mut stream: TcpStream) {
    let (mut held, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        held.extend_from_slice(&piece[..read]);
        let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
        while let Ok(Decoded::Request { consumed, .. }) =
            decoder.decode(&mut held, &RequestLimits::default(), &mut spans)
        {
            let reply = known(&Args::new(&held, &spans)[0]).unwrap_or(WORD);
            if stream.write_all(reply).is_err() {
                return;
            }
            held.drain(..consumed);
            spans.clear();
        }
    }
}

/// What both servers answer in earnest, since the proxy asks it for itself.
fn known(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        b"PING" => Some(b"+PONG\r\n"),
        b"HELLO" => Some(b"%1\r\n$5\r\nproto\r\n:3\r\n"),
        b"SELECT" => Some(b"+OK\r\n"),
        _ => None,
    }
}

/// The first server's end.
#[derive(Default)]
struct Server {
    streams: Vec<TcpStream>,
}

impl Server {
    /// Takes who comes, reads what there is, and answers what the proxy asks for itself.
    fn look(&mut self, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            let _ = stream.set_nonblocking(true);
            let _ = stream.set_nodelay(true);
            self.streams.push(stream);
        }
        self.streams.retain_mut(|stream| {
            let mut piece = [0; 16 * 1024];
            match stream.read(&mut piece) {
                Ok(0) => false,
                Ok(read) => {
                    let (mut decoder, mut spans) = (RequestDecoder::new(), Vec::new());
                    let limits = RequestLimits::default();
                    let found = decoder.decode(&mut piece[..read], &limits, &mut spans);
                    if let Ok(Decoded::Request { .. }) = found {
                        let name = Args::new(&piece[..read], &spans)[0].to_vec();
                        if let Some(reply) = known(&name) {
                            let _ = stream.write_all(reply);
                        }
                    }
                    true
                }
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        });
    }

    fn say(&mut self, which: u8, bytes: &[u8]) {
        let count = self.streams.len();
        if count > 0 {
            let _ = self.streams[usize::from(which) % count].write_all(bytes);
        }
    }
}

/// Calls through the proxy, and reads a reply of this length.
fn asked(stream: &mut TcpStream, request: &[u8], reply: &mut [u8]) {
    stream.write_all(request).expect("the proxy listens");
    stream.read_exact(reply).expect("the proxy answers");
}

fuzz_target!(|data: &[u8]| {
    let mut table = TABLE.lock().expect("nobody has panicked");
    let table = &mut *table;
    let mut server = Server::default();
    let mut clients: [Option<TcpStream>; CLIENTS] = [const { None }; CLIENTS];
    let mut choices = Choices(data);
    while let Some(choice) = choices.byte() {
        let which = choices.byte().unwrap_or(0);
        let client = &mut clients[usize::from(which) % CLIENTS];
        if choice < 130 && client.is_none() {
            *client = TcpStream::connect(table.proxy).ok();
            if let Some(client) = client {
                let _ = client.set_nonblocking(true);
                let _ = client.set_nodelay(true);
            }
        }
        match choice {
            0..60 => {
                let len = choices.byte().unwrap_or(0);
                let bytes = choices.take(len.into());
                if let Some(client) = client {
                    let _ = client.write_all(bytes);
                }
            }
            60..130 => {
                let line = REQUESTS[usize::from(choices.byte().unwrap_or(0)) % REQUESTS.len()];
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                let mut bytes = Vec::new();
                redline_resp::encode_request(words, &mut bytes);
                if let Some(client) = client {
                    let _ = client.write_all(&bytes);
                }
            }
            130..180 => {
                let len = choices.byte().unwrap_or(0);
                server.say(which, choices.take(len.into()));
            }
            180..230 => {
                let reply = REPLIES[usize::from(choices.byte().unwrap_or(0)) % REPLIES.len()];
                server.say(which, reply.as_bytes());
                #[cfg(feature = "planted")]
                assert!(
                    reply != REPLIES[18] || server.streams.len() < 2,
                    "the planted fault"
                );
            }
            230..240 => *client = None,
            240..250 if !server.streams.is_empty() => {
                let at = usize::from(which) % server.streams.len();
                drop(server.streams.swap_remove(at));
            }
            _ => {}
        }
        // A turn of the proxy has passed when it has answered this.
        asked(&mut table.bystander, b"PING\r\n", &mut [0; 7]);
        server.look(&table.listener);
        for client in clients.iter_mut().flatten() {
            let mut piece = [0; 16 * 1024];
            let _ = client.read(&mut piece);
        }
    }
    let mut reply = [0; WORD.len()];
    asked(&mut table.bystander, ITS_REQUEST, &mut reply);
    assert_eq!(reply, *WORD, "the other server's reply");
    drop(clients);
    // Whoever left is forgotten, once the server has left with what they asked for.
    let until = Instant::now() + PATIENCE;
    loop {
        server.look(&table.listener);
        server.streams.clear();
        asked(&mut table.bystander, b"INFO clients\r\n", &mut [0; 1]);
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") || !text.contains(&b'#') {
            let mut piece = [0; 1024];
            let read = table.bystander.read(&mut piece).expect("the proxy answers");
            text.extend_from_slice(&piece[..read]);
        }
        if String::from_utf8_lossy(&text).contains("connected_clients:1\r\n") {
            break;
        }
        assert!(
            Instant::now() < until,
            "clients are left behind: {}",
            String::from_utf8_lossy(&text)
        );
    }
});
