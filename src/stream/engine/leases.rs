//! Leases of native objects to user functions, each while the function runs on its thread.

use crate::sync::Mutex;
use std::sync::Arc;
use std::thread::{self, ThreadId};

/// Leases in the order in which they began: the last one of a thread is its innermost.
pub(crate) struct Leases<T: ?Sized>(Mutex<Vec<(ThreadId, Arc<T>)>>);

impl<T: ?Sized> Default for Leases<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: ?Sized> Leases<T> {
    pub fn lease(&self, what: &Arc<T>) -> Lease<'_, T> {
        let thread = thread::current().id();
        self.0.lock().push((thread, Arc::clone(what)));
        let what = Arc::clone(what);
        Lease {
            from: self,
            thread,
            what,
        }
    }

    /// The object leased to the innermost function of this thread.
    pub fn innermost(&self) -> Option<Arc<T>> {
        let here = thread::current().id();
        let leased = self.0.lock();
        let own = leased.iter().rev().find(|(thread, _)| *thread == here);
        own.map(|(_, what)| Arc::clone(what))
    }
}

/// A lease. Ends when dropped.
pub(crate) struct Lease<'a, T: ?Sized> {
    from: &'a Leases<T>,
    thread: ThreadId,
    pub what: Arc<T>,
}

impl<T: ?Sized> Drop for Lease<'_, T> {
    fn drop(&mut self) {
        let own = |(thread, what): &(ThreadId, Arc<T>)| {
            *thread == self.thread && std::ptr::addr_eq(Arc::as_ptr(what), Arc::as_ptr(&self.what))
        };
        let mut leased = self.from.0.lock();
        let at = leased.iter().rposition(own);
        debug_assert!(at.is_some(), "a lease ended before");
        if let Some(at) = at {
            leased.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_innermost() {
        let leased = Leases::default();
        let [one, two, three] = [1, 2, 3].map(Arc::new);
        let here = || leased.innermost().map(|what| *what);
        assert_eq!(here(), None);
        thread::scope(|scope| {
            let (resume, resumed) = std::sync::mpsc::channel::<()>();
            let (start, started) = std::sync::mpsc::channel::<()>();
            let (leased, three) = (&leased, &three);
            let other = scope.spawn(move || {
                let lease = leased.lease(three);
                start.send(()).expect("the test waits");
                resumed.recv().expect("the test goes on");
                assert_eq!(leased.innermost().map(|what| *what), Some(3));
                drop(lease);
                assert_eq!(leased.innermost(), None);
            });
            started.recv().expect("the other thread runs");
            assert_eq!(here(), None, "another thread's");
            let outer = leased.lease(&one);
            let inner = leased.lease(&two);
            resume.send(()).expect("it waits");
            other.join().expect("it ends");
            assert_eq!(here(), Some(2), "whatever others gave back");
            drop(inner);
            assert_eq!(here(), Some(1));
            drop(outer);
        });
        assert_eq!(here(), None);
    }
}
