//! The service of a process that hands its objects to others, as file descriptors.
//!
//! A descriptor cannot travel as bytes. The opener connects to an abstract Unix socket of the exporter,
//! names the export and proves with a key that it has the blob; a thread of the exporter sends a descriptor
//! for each page. Both processes must be of the same user, or the opener the superuser's, and in the same
//! network namespace. Neither needs permission to trace the other, which pidfd_getfd(2) would ask for.
//!
//! The thread lives while there are exports.
//!
//! | message | bytes |
//! |---|---|
//! | request | number of the export, key |
//! | answer | result code, number of pages, offset of the memory in the first page, bytes of the memory |
//! | page, for each | result code, bytes of the page; with the descriptor if the code is success |

use std::any::Any;
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    accept_with, bind, connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::geteuid;
use rustix::rand::{GetRandomFlags, getrandom};

use super::blob::{ExportName, KEY_BYTES, take};
use crate::abi::*;
use crate::object::{Error, Result};
use crate::sync::Mutex;

/// Limit on the time that one message may take, in seconds: neither process is held up by a dead one.
const MESSAGE_SECONDS: u64 = 5;

/// Number of openers that may wait for the service.
const WAITING_OPENERS: i32 = 64;

const REQUEST_BYTES: usize = 8 + KEY_BYTES;
const ANSWER_BYTES: usize = 4 + 4 + 8 + 8;
const PAGE_BYTES: usize = 4 + 8;

/// Memory that other processes may open.
pub struct Export {
    /// The bytes of the native allocations, in order.
    pub pages: Vec<usize>,
    /// A new descriptor of the allocation with this index.
    pub descriptor: Box<dyn Fn(usize) -> Result<OwnedFd> + Send + Sync>,
    /// Bytes from the first page's start to the memory's.
    pub offset: usize,
    /// Bytes of the memory.
    pub bytes: usize,
    /// Keeps the pages alive and where they are.
    pub keeps: Box<dyn Any + Send + Sync>,
}

/// The exports of this process, and its service.
#[derive(Default)]
struct Broker {
    exports: HashMap<u64, (Arc<Export>, [u8; KEY_BYTES])>,
    last: u64,
    service: Option<Service>,
}

/// The thread that answers openers.
struct Service {
    /// The process that the thread is of: a forked child has none.
    process: u32,
    number: u64,
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

static BROKER: LazyLock<Mutex<Broker>> = LazyLock::new(Mutex::default);

/// An export, until it is dropped. From then on nobody can open it any more.
pub struct Published(u64);

/// Lets other processes open memory.
pub fn publish(export: Export) -> Result<(Published, ExportName)> {
    let mut key = [0; KEY_BYTES];
    random(&mut key)?;
    let mut broker = BROKER.lock();
    let (process, service) = match &broker.service {
        Some(service) => (service.process, service.number),
        None => {
            let service = Service::start().map_err(|error| failed("sharing memory", &error))?;
            let names = (service.process, service.number);
            broker.service = Some(service);
            names
        }
    };
    broker.last += 1;
    let number = broker.last;
    broker.exports.insert(number, (Arc::new(export), key));
    let name = ExportName {
        process,
        service,
        export: number,
        key,
    };
    Ok((Published(number), name))
}

impl Drop for Published {
    fn drop(&mut self) {
        let mut broker = BROKER.lock();
        let ended = broker.exports.remove(&self.0);
        let idle = broker.exports.is_empty();
        let service = broker.service.take_if(|_| idle);
        drop(broker);
        // The export ends without the lock: the pool takes its block back.
        drop(ended);
        if let Some(service) = service {
            service.end();
        }
    }
}

impl Service {
    fn start() -> io::Result<Self> {
        let mut number = [0; 8];
        random(&mut number).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let number = u64::from_le_bytes(number);
        let process = std::process::id();
        let listener = socket()?;
        bind(&listener, &address(process, number)?)?;
        listen(&listener, WAITING_OPENERS)?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("ur-ipc".into());
        let thread = thread.spawn(move || serve(&listener, &stopped))?;
        Ok(Self {
            process,
            number,
            stop,
            thread,
        })
    }

    fn end(self) {
        if self.process != std::process::id() {
            // A forked child: the thread is its parent's.
            std::mem::forget(self);
            return;
        }
        let stopped = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes()).is_ok();
        // What an export kept may end on the service itself, and hold the last other export. The thread then
        // ends by itself.
        if stopped && self.thread.thread().id() == std::thread::current().id() {
            return;
        }
        if !stopped || self.thread.join().is_err() {
            log::error!("the service of shared memory did not end");
        }
    }
}

fn serve(listener: &OwnedFd, stop: &OwnedFd) {
    loop {
        let ready = {
            let mut both = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(listener, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) => both.map(|one| !one.revents().is_empty()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    log::error!("memory is shared no more: poll: {error}");
                    return;
                }
            }
        };
        match ready {
            [true, _] => return,
            [_, false] => {}
            [_, true] => {
                let opener = accept_with(listener, SocketFlags::CLOEXEC);
                let answered = opener
                    .map_err(io::Error::from)
                    .and_then(|opener| answer(&opener));
                if let Err(error) = answered {
                    log::debug!("an opener of shared memory got no answer: {error}");
                }
            }
        }
    }
}

/// Answers one opener.
fn answer(opener: &OwnedFd) -> io::Result<()> {
    limit(opener)?;
    let who = socket_peercred(opener)?.uid;
    if who != geteuid() && !who.is_root() {
        return send_answer(opener, UR_RESULT_ERROR_INVALID_OPERATION, None);
    }
    let (request, _) = receive::<REQUEST_BYTES>(opener)?;
    let mut rest = &request[..];
    let (number, key) = (u64::from_le_bytes(take(&mut rest)), take(&mut rest));
    let export = {
        let broker = BROKER.lock();
        let found = broker.exports.get(&number);
        found
            .filter(|(_, own)| *own == key)
            .map(|(export, _)| Arc::clone(export))
    };
    let Some(export) = export else {
        return send_answer(opener, UR_RESULT_ERROR_INVALID_VALUE, None);
    };
    send_answer(opener, UR_RESULT_SUCCESS, Some(&export))?;
    export
        .pages
        .iter()
        .enumerate()
        .try_for_each(|(page, bytes)| {
            let exported = (export.descriptor)(page);
            let (code, descriptor) = match &exported {
                Ok(descriptor) => (UR_RESULT_SUCCESS, Some(descriptor.as_fd())),
                Err(error) => (error.code(), None),
            };
            let mut message = [0; PAGE_BYTES];
            message[..4].copy_from_slice(&code.0.to_le_bytes());
            message[4..].copy_from_slice(&(*bytes as u64).to_le_bytes());
            send(opener, &message, descriptor)
        })
}

fn send_answer(opener: &OwnedFd, code: ur_result_t, export: Option<&Export>) -> io::Result<()> {
    let numbers = export.map_or((0, 0, 0), |export| {
        (
            export.pages.len() as u32,
            export.offset as u64,
            export.bytes as u64,
        )
    });
    let mut message = Vec::with_capacity(ANSWER_BYTES);
    message.extend(code.0.to_le_bytes());
    message.extend(numbers.0.to_le_bytes());
    message.extend(numbers.1.to_le_bytes());
    message.extend(numbers.2.to_le_bytes());
    send(opener, &message, None)
}

/// Memory of another process.
pub struct Opened<P> {
    /// What was made of each page's descriptor, and the bytes of the page.
    pub pages: Vec<(P, usize)>,
    pub offset: usize,
    pub bytes: usize,
}

/// Opens memory of another process. `import` makes something of the descriptor of each page.
pub fn open<P>(
    name: &ExportName,
    mut import: impl FnMut(&OwnedFd) -> Result<P>,
) -> Result<Opened<P>> {
    let mut request = [0; REQUEST_BYTES];
    request[..8].copy_from_slice(&name.export.to_le_bytes());
    request[8..].copy_from_slice(&name.key);
    let ask = || -> io::Result<(OwnedFd, [u8; ANSWER_BYTES])> {
        let exporter = socket()?;
        limit(&exporter)?;
        connect(&exporter, &address(name.process, name.service)?)?;
        send(&exporter, &request, None)?;
        let (message, _) = receive(&exporter)?;
        Ok((exporter, message))
    };
    let (exporter, message) = ask().map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => gone(),
        _ => failed("opening memory of another process", &error),
    })?;
    let mut rest = &message[..];
    refused(u32::from_le_bytes(take(&mut rest)))?;
    let count = u32::from_le_bytes(take(&mut rest));
    let offset = u64::from_le_bytes(take(&mut rest)) as usize;
    let bytes = u64::from_le_bytes(take(&mut rest)) as usize;
    let mut pages = Vec::new();
    for _ in 0..count {
        let (message, descriptor) = receive::<PAGE_BYTES>(&exporter)
            .map_err(|error| failed("receiving memory of another process", &error))?;
        let mut rest = &message[..];
        refused(u32::from_le_bytes(take(&mut rest)))?;
        let size = u64::from_le_bytes(take(&mut rest)) as usize;
        let descriptor = descriptor.ok_or_else(gone)?;
        pages.push((import(&descriptor)?, size));
    }
    let mut sizes = pages.iter().map(|(_, size)| *size);
    let all = sizes.try_fold(0_usize, usize::checked_add);
    let end = offset.checked_add(bytes);
    match end.zip(all).is_some_and(|(end, all)| end <= all) {
        true => Ok(Opened {
            pages,
            offset,
            bytes,
        }),
        false => Err(Error::new(UR_RESULT_ERROR_INVALID_VALUE)),
    }
}

/// The error of a blob that no process answers for.
fn gone() -> Error {
    let text = "no process of this network namespace answers for the handle: it has ended, or has given the \
                handle back";
    Error::native(UR_RESULT_ERROR_INVALID_VALUE, 0, text)
}

/// The error that the exporter answered with.
fn refused(code: u32) -> Result<()> {
    match ur_result_t(code as _) {
        UR_RESULT_SUCCESS => Ok(()),
        UR_RESULT_ERROR_INVALID_VALUE => Err(gone()),
        UR_RESULT_ERROR_INVALID_OPERATION => {
            let text = "the process that made the handle is another user's";
            Err(Error::native(UR_RESULT_ERROR_INVALID_OPERATION, 0, text))
        }
        code => Err(Error::new(code)),
    }
}

fn failed(what: &str, error: &io::Error) -> Error {
    let text = format!("{what}: {error}");
    log::debug!("{text}");
    let code = error.raw_os_error().unwrap_or_default();
    Error::native(UR_RESULT_ERROR_OUT_OF_RESOURCES, code, &text)
}

fn random(bytes: &mut [u8]) -> Result<()> {
    let filled = getrandom(&mut *bytes, GetRandomFlags::empty());
    match filled {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Error::new(UR_RESULT_ERROR_OUT_OF_RESOURCES)),
        Err(error) => Err(failed("getrandom", &error.into())),
    }
}

/// A socket that keeps messages apart.
fn socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

fn address(process: u32, service: u64) -> io::Result<SocketAddrUnix> {
    let name = format!("unified-runtime-{process}-{service:016x}");
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

fn limit(socket: &OwnedFd) -> io::Result<()> {
    let time = Some(Duration::from_secs(MESSAGE_SECONDS));
    set_socket_timeout(socket, Timeout::Recv, time)?;
    set_socket_timeout(socket, Timeout::Send, time)?;
    Ok(())
}

fn send(socket: &OwnedFd, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts = [IoSlice::new(message)];
    let sent = sendmsg(socket, &parts, &mut beside, SendFlags::NOSIGNAL)?;
    match sent == message.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// A message of this size, and the descriptor that came with it.
fn receive<const BYTES: usize>(socket: &OwnedFd) -> io::Result<([u8; BYTES], Option<OwnedFd>)> {
    let mut message = [0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut message)];
    let got = recvmsg(socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    let whole = got.bytes == BYTES && !got.flags.contains(ReturnFlags::TRUNC);
    let mut descriptors = beside.drain().filter_map(|one| match one {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptor = descriptors.next().and_then(|mut all| all.next());
    drop(descriptors);
    match whole {
        true => Ok((message, descriptor)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// An export that ends while it is sent may be the last user of others, whose end stops the service.
    #[test]
    fn a_service_may_stop_itself() {
        let (give, take) = channel::<Service>();
        let (tell, hear) = channel();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("an event"));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let service = take.recv().expect("the test gives it");
            service.end();
            let mut both = [PollFd::new(&*stopped, PollFlags::IN)];
            let ended = poll(&mut both, None).is_ok();
            tell.send(ended).expect("the test waits");
        });
        let (process, number) = (std::process::id(), 1);
        #[rustfmt::skip]
        let service = Service { process, number, stop, thread };
        give.send(service).expect("the thread waits");
        assert_eq!(hear.recv(), Ok(true), "the thread has not ended by itself");
    }

    /// Answers one opener as a process may that is broken, or lies: with pages of these sizes.
    fn lying(sizes: &'static [u64], offset: u64, bytes: u64) -> Result<Opened<usize>> {
        let name = ExportName {
            process: std::process::id(),
            service: u64::from_ne_bytes(*b"a lying ") ^ sizes.len() as u64 ^ offset ^ bytes,
            export: 1,
            key: [3; KEY_BYTES],
        };
        let listener = socket().expect("a socket");
        let at = address(name.process, name.service).expect("an address");
        bind(&listener, &at).expect("a free address");
        listen(&listener, 1).expect("a listener");
        let exporter = std::thread::spawn(move || -> io::Result<()> {
            let opener = accept_with(&listener, SocketFlags::CLOEXEC)?;
            let (request, _) = receive::<REQUEST_BYTES>(&opener)?;
            assert_eq!(request[8..], [3; KEY_BYTES]);
            let mut message = Vec::new();
            message.extend(UR_RESULT_SUCCESS.0.to_le_bytes());
            message.extend((sizes.len() as u32).to_le_bytes());
            message.extend(offset.to_le_bytes());
            message.extend(bytes.to_le_bytes());
            send(&opener, &message, None)?;
            for size in sizes {
                let mut message = [0; PAGE_BYTES];
                message[4..].copy_from_slice(&size.to_le_bytes());
                send(&opener, &message, Some(listener.as_fd()))?;
            }
            Ok(())
        });
        let opened = open(&name, |_| Ok(0));
        assert!(exporter.join().is_ok_and(|sent| sent.is_ok()));
        opened
    }

    #[test]
    fn an_answer_is_checked() {
        let invalid = Some(Error::new(UR_RESULT_ERROR_INVALID_VALUE));
        let right = lying(&[4096, 4096], 100, 5000).expect("memory within its pages");
        assert_eq!((right.pages.len(), right.bytes), (2, 5000));
        for (sizes, offset, bytes) in [
            (&[4096, 4096][..], 100, 8192),
            (&[4096], u64::MAX, 1),
            // Their sum wraps.
            (&[u64::MAX, 11], 0, 10),
            (&[], 0, 1),
        ] {
            let opened = lying(sizes, offset, bytes);
            assert_eq!(opened.err(), invalid, "{sizes:?}, {offset}, {bytes}");
        }
    }
}
