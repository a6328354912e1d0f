//! Calls the load generator as the program does, on streams of the test.
#![allow(dead_code)] // each test binary uses a part of it

use redline_bench::{StartEmbedded, Streams, run};

/// Exit code and output of one call.
pub struct Ran {
    pub code: u8,
    pub stdout: String,
    pub stderr: String,
}

pub fn bench(args: &[&str]) -> Ran {
    bench_with(args, b"", None)
}

pub fn bench_with(args: &[&str], mut stdin: &[u8], embedded: Option<StartEmbedded<'_>>) -> Ran {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = Streams {
        stdin: &mut stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let code = run("redline bench", &args, streams, embedded);
    let text = |bytes| String::from_utf8(bytes).expect("output is text");
    Ran {
        code,
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

/// The output without the lines that are rewritten while a test runs.
pub fn settled(output: &str) -> String {
    let lines = output
        .split('\n')
        .map(|line| line.rsplit('\r').next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}
