//! Progress of a long run whose standard error is no terminal, such as a log of CI.
//!
//! Owns the thread that writes a line now and then. A run that ends within [`INTERVAL`] writes none.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two lines. CI systems end a job after minutes without output.
const INTERVAL: Duration = Duration::from_secs(10);

/// Writes lines until it is dropped.
pub struct Progress {
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts lines of `text`, to which the seconds since now are passed. Nothing is written to a
    /// terminal.
    pub fn start(text: impl Fn(u64) -> String + Send + 'static) -> Progress {
        if io::stderr().is_terminal() {
            return Progress {
                stop: None,
                thread: None,
            };
        }
        Progress::every(INTERVAL, move |seconds| crate::errln!("{}", text(seconds)))
    }

    /// Calls `report` after each interval.
    fn every(interval: Duration, report: impl Fn(u64) + Send + 'static) -> Progress {
        let (stop, stopped) = channel();
        let start = Instant::now();
        let lines = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                report(start.elapsed().as_secs());
            }
        };
        // Without a thread the run goes on in silence.
        let thread = std::thread::Builder::new().spawn(lines).ok();
        Progress {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread has been printed, and does not concern the run.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::TryRecvError;

    use super::*;

    #[test]
    fn lines_come_until_the_drop() {
        let (sender, receiver) = channel();
        let progress = Progress::every(Duration::from_millis(1), move |seconds| {
            let _ = sender.send(seconds);
        });
        for _ in 0..3 {
            let seconds = receiver.recv_timeout(Duration::from_secs(60));
            assert!(seconds.is_ok());
        }
        drop(progress);
        // The thread has ended, so that nothing follows what it had sent.
        while receiver.try_recv().is_ok() {}
        let after = receiver.try_recv();
        assert_eq!(after, Err(TryRecvError::Disconnected));
    }

    #[test]
    fn a_short_run_has_none() {
        let count = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(&count);
        drop(Progress::every(Duration::from_secs(600), move |_| {
            shared.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
