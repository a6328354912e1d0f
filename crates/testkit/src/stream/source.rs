//! The places where a server's stream of effects is read: its replication stream, by a replica that keeps no data, or its
//! append-only file, from its end on. Must not know what commands mean.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time until something more is in a stream.
const MORE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two acknowledgements: a primary gives up a replica that is silent for a minute.
const ACKNOWLEDGED_EVERY: Duration = Duration::from_secs(1);
/// Time between two looks at the end of a file.
const FILE_POLL: Duration = Duration::from_micros(200);
/// Size of one read: bytes.
const READ_BYTES: usize = 64 << 10;

/// An open stream of effects.
#[derive(Debug)]
pub enum Source {
    /// The replication stream.
    Replica(Replica),
    /// The append-only file, of which replicas would get the same and messages of PUBLISH besides.
    AppendOnlyFile(File),
}

impl Source {
    /// Attaches a replica to the server, and throws its snapshot away.
    pub fn replica(address: SocketAddr) -> io::Result<Source> {
        Replica::attach(address).map(Source::Replica)
    }

    /// Opens the newest part of the append-only file in the working directory of a server that has just started.
    pub fn append_only_file(directory: &Path) -> io::Result<Source> {
        let folder = directory.join("appendonlydir");
        let manifest = fs::read_dir(&folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|end| end == "manifest"))
            .ok_or_else(|| io::Error::other(format!("{}: no manifest", folder.display())))?;
        let text = fs::read_to_string(&manifest)?;
        let newest = text
            .lines()
            .filter(|line| line.ends_with("type i"))
            .filter_map(|line| line.split(' ').nth(1))
            .next_back()
            .ok_or_else(|| io::Error::other(format!("{}: no incr file", manifest.display())))?;
        File::open(folder.join(newest)).map(Source::AppendOnlyFile)
    }

    /// Returns true if messages of PUBLISH are part of the stream.
    pub fn has_messages(&self) -> bool {
        matches!(self, Source::Replica(_))
    }

    /// Appends what has come since the last call; waits until there is something.
    pub fn read(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + READ_BYTES, 0);
        let read = match self {
            Source::Replica(replica) => replica.read(&mut out[start..]),
            Source::AppendOnlyFile(file) => read_grown(file, &mut out[start..]),
        };
        out.truncate(start + *read.as_ref().unwrap_or(&0));
        read.map(drop)
    }
}

/// Reads behind what was read of a file that grows.
fn read_grown(file: &mut File, out: &mut [u8]) -> io::Result<usize> {
    let deadline = Instant::now() + MORE_TIMEOUT;
    loop {
        match file.read(out)? {
            0 if Instant::now() > deadline => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the append-only file does not grow",
                ));
            }
            0 => std::thread::sleep(FILE_POLL),
            read => return Ok(read),
        }
    }
}

/// A replica that keeps no data.
#[derive(Debug)]
pub struct Replica {
    stream: TcpStream,
    /// Offset of the end of what was read, as its primary counts.
    offset: u64,
    acknowledged_at: Instant,
}

impl Replica {
    fn attach(address: SocketAddr) -> io::Result<Replica> {
        let mut stream = TcpStream::connect_timeout(&address, MORE_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(MORE_TIMEOUT))?;
        // Without `capa eof` the snapshot comes with its length.
        stream.write_all(b"REPLCONF capa psync2\r\n")?;
        let accepted = line(&mut stream)?;
        if accepted != "+OK" {
            return Err(io::Error::other(format!("REPLCONF: {accepted}")));
        }
        stream.write_all(b"PSYNC ? -1\r\n")?;
        let resync = line(&mut stream)?;
        let offset = match resync.split(' ').collect::<Vec<_>>()[..] {
            ["+FULLRESYNC", _, offset] => offset.parse().ok(),
            _ => None,
        };
        let offset = offset.ok_or_else(|| io::Error::other(format!("PSYNC: {resync}")))?;
        let header = loop {
            // Empty lines keep the connection alive while the snapshot is made.
            let line = line(&mut stream)?;
            if !line.is_empty() {
                break line;
            }
        };
        let bytes = header.strip_prefix('$').and_then(|text| text.parse().ok());
        let bytes: u64 = bytes.ok_or_else(|| io::Error::other(format!("snapshot: {header}")))?;
        let thrown = io::copy(&mut (&stream).take(bytes), &mut io::sink())?;
        if thrown != bytes {
            return Err(io::Error::other("the snapshot ends early"));
        }
        Ok(Replica {
            stream,
            offset,
            acknowledged_at: Instant::now(),
        })
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.acknowledged_at.elapsed() > ACKNOWLEDGED_EVERY {
            let ack = format!("REPLCONF ACK {}\r\n", self.offset);
            self.stream.write_all(ack.as_bytes())?;
            self.acknowledged_at = Instant::now();
        }
        let read = self.stream.read(out)?;
        if read == 0 {
            let kind = io::ErrorKind::UnexpectedEof;
            return Err(io::Error::new(kind, "the primary has let the replica go"));
        }
        self.offset += read as u64;
        Ok(read)
    }
}

/// Reads a line, byte by byte, since what follows is not ours to read yet.
fn line(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            break;
        }
        text.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.trim_end_matches('\r').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_replica_throws_the_snapshot_away_and_reads_what_follows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let primary = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            line(&mut stream).unwrap();
            stream.write_all(b"+OK\r\n").unwrap();
            assert_eq!(line(&mut stream).unwrap(), "PSYNC ? -1");
            stream
                .write_all(b"+FULLRESYNC abc 7\r\n\n$3\r\nRDB*1\r\n$4\r\nPING\r\n")
                .unwrap();
        });
        let mut source = Source::replica(address).unwrap();
        let mut read = Vec::new();
        while read.len() < 14 {
            source.read(&mut read).unwrap();
        }
        assert_eq!(read, b"*1\r\n$4\r\nPING\r\n");
        primary.join().unwrap();
        assert!(source.read(&mut read).is_err());
    }
}
