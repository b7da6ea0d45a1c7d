//! A second process of a test: the same test once more, in another role.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "SCRIPTED_ROLE";

/// Begins each line of the second process, since the test's frame prints lines too.
const MARK: &str = "peer:";

/// Whether this is the second process.
pub fn is_second() -> bool {
    env::var_os(ROLE).is_some()
}

/// The second process of the test of this name.
pub struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    pub fn start(name: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", name, "--nocapture"])
            .env(scripted::ALONE, name)
            .env(ROLE, "second")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let to = child.stdin.take().expect("its input");
        let from = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, to, from }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        writeln!(self.to, "{}", hex(bytes)).expect("the second process reads");
    }

    /// Receives bytes.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.from.read_line(&mut line).expect("its output");
            assert!(count > 0, "the second process has ended");
            if let Some((_, bytes)) = line.trim_end().split_once(MARK) {
                return unhex(bytes);
            }
        }
    }

    /// Waits for the end of the process, which must succeed.
    pub fn end(self) {
        let Self {
            mut child,
            to,
            from,
        } = self;
        drop(to);
        let rest: Vec<String> = from.lines().map_while(Result::ok).collect();
        let status = child.wait().expect("an end");
        assert!(status.success(), "{rest:?}");
    }
}

/// In the second process: sends bytes to the first.
pub fn answer(bytes: &[u8]) {
    println!("\n{MARK}{}", hex(bytes));
}

/// In the second process: receives bytes from the first. None at its end.
pub fn request() -> Option<Vec<u8>> {
    let mut line = String::new();
    let count = std::io::stdin()
        .read_line(&mut line)
        .expect("the first process");
    (count > 0).then(|| unhex(line.trim_end()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte");
    (0..text.len()).step_by(2).map(byte).collect()
}
