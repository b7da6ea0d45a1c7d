//! Timestamps of commands, in nanoseconds on the device's clock.
//!
//! A command's event holds the low bits of the device's counter, often 32, which wrap after minutes. The high bits
//! come from the counter's present value: a command that ended was at most one turn ago when it is first asked for.

use ur::object::Result;
use ur::stream::Timestamps;

use super::event::Event;
use crate::device::mask;

/// Makes timestamps fill themselves from the events of the first and the last command.
pub fn fill(timestamps: &Timestamps, first: std::sync::Arc<Event>, last: std::sync::Arc<Event>) {
    timestamps.fill_from(Box::new(move |timestamps| {
        if let Ok(Some((start, end))) = read(&first, &last) {
            timestamps.record(start, end);
        }
    }));
}

/// Start and end, once both events are complete.
fn read(first: &Event, last: &Event) -> Result<Option<(u64, u64)>> {
    if !last.is_done()? || !first.is_done()? {
        return Ok(None);
    }
    let (start, _) = first.ticks()?;
    let (_, end) = last.ticks()?;
    let device = &last.device;
    let (_, now) = device.clocks()?;
    let bits = device.facts.base.kernelTimestampValidBits;
    let end = unwrapped(end, now, bits);
    let start = unwrapped(start, end, bits);
    let time = |ticks| device.facts.nanoseconds(ticks).max(1);
    Ok(Some((time(start), time(end))))
}

/// The latest time not after `until` whose low bits are these.
fn unwrapped(low: u64, until: u64, bits: u32) -> u64 {
    let mask = mask(bits);
    until.wrapping_sub(until.wrapping_sub(low) & mask)
}

#[cfg(test)]
mod tests {
    use super::unwrapped;

    #[test]
    fn a_wrapped_counter_is_continued() {
        assert_eq!(unwrapped(0x10, 0x20, 32), 0x10);
        assert_eq!(unwrapped(0xffff_fff0, 0x1_0000_0010, 32), 0xffff_fff0);
        assert_eq!(unwrapped(5, 0x7_0000_0005, 32), 0x7_0000_0005);
        assert_eq!(unwrapped(5, 9, 64), 5);
    }
}
