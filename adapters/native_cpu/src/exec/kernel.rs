//! Kernels: what a launch holds and how its work-groups are run.
//!
//! A kernel is `void kernel(void *const *args, state *)`, called once for each work-item. `args`
//! holds the address of each by-value argument's bytes, and each pointer itself. A function that
//! was compiled to loop over its whole work-group is called once a group instead; only in such a
//! function can there be a barrier.

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use super::scratch::{LOCAL_ALIGN_BYTES, Scratch};

/// A kernel's queries about its work-item. The compiler defines the layout.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct WorkItemState {
    pub global_id: [usize; 3],
    pub global_range: [usize; 3],
    pub group_size: [usize; 3],
    pub group_id: [usize; 3],
    pub local_id: [usize; 3],
    pub groups: [usize; 3],
    pub global_offset: [usize; 3],
    pub sub_groups: u32,
    pub sub_group_id: u32,
    pub sub_group_local_id: u32,
    pub sub_group_size: u32,
}

pub type Function = unsafe extern "C" fn(args: *const *const c_void, state: *mut WorkItemState);

/// How often a kernel's function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Once for each work-item.
    Item,
    /// Once for each work-group, over whose items it loops itself.
    Group,
}

/// An index space: `groups * local` work-items in each dimension, from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdRange {
    pub offset: [usize; 3],
    pub groups: [usize; 3],
    pub local: [usize; 3],
}

impl NdRange {
    pub fn group_count(&self) -> usize {
        self.groups.iter().product()
    }
}

/// Most bytes to which a by-value argument is aligned.
const VALUE_ALIGN_BYTES: usize = 128;

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Line {
    bytes: [u8; VALUE_ALIGN_BYTES],
}

impl Line {
    const ZERO: Line = Line {
        bytes: [0; VALUE_ALIGN_BYTES],
    };
}

/// Bytes of zeros that nothing can write.
#[repr(C, align(4096))]
struct Zeros([u8; 4096]);

static ZEROS: Zeros = Zeros([0; 4096]);

/// What stands for an argument that was not given: the address of zeros. A kernel that reads one gets zeros,
/// by value or behind its pointer, and no memory of others.
fn missing() -> usize {
    (&raw const ZEROS).expose_provenance()
}

/// Number of missing arguments behind the last one given. The number of arguments that a kernel takes may be
/// unknown; a launch that lacks no more than these reads within the table.
const SPARE_ARGS: usize = 32;

/// A kernel's arguments, copied.
#[derive(Default)]
pub struct Args {
    /// What the kernel gets; addresses into `values` are set when it is complete.
    table: Vec<usize>,
    values: Vec<Line>,
    /// (index, offset in `values`) of by-value arguments.
    by_value: Vec<(usize, usize)>,
    /// (index, offset in the local memory) of local arguments.
    local: Vec<(usize, usize)>,
    used_values: usize,
    used_local: usize,
}

impl Args {
    /// No arguments yet, with room for that many.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            table: Vec::with_capacity(count + SPARE_ARGS),
            ..Self::default()
        }
    }

    fn slot(&mut self, index: usize) -> &mut usize {
        if self.table.len() <= index {
            self.table.resize(index + 1, missing());
        }
        &mut self.table[index]
    }

    /// The number of arguments. `None` if one before the last is missing.
    pub fn count(&self) -> Option<usize> {
        let complete = !self.table.contains(&missing());
        complete.then_some(self.table.len())
    }

    pub fn pointer(&mut self, index: usize, address: usize) {
        *self.slot(index) = address;
    }

    /// Copies a value; its address has the alignment that any type of its size may need.
    pub fn value(&mut self, index: usize, bytes: &[u8]) {
        *self.slot(index) = 0;
        let align = bytes.len().next_power_of_two().clamp(8, VALUE_ALIGN_BYTES);
        let from = self.used_values.next_multiple_of(align);
        self.used_values = from + bytes.len();
        let lines = self.used_values.div_ceil(VALUE_ALIGN_BYTES).max(1);
        self.values.resize(lines, Line::ZERO);
        bytes_of(&mut self.values)[from..from + bytes.len()].copy_from_slice(bytes);
        self.by_value.push((index, from));
    }

    /// A block of local memory, the same bytes for each work-item of a group.
    pub fn local(&mut self, index: usize, bytes: usize) {
        *self.slot(index) = 0;
        self.local.push((index, self.used_local));
        self.used_local = self
            .used_local
            .saturating_add(bytes)
            .checked_next_multiple_of(LOCAL_ALIGN_BYTES)
            .unwrap_or(usize::MAX);
    }

    /// Local memory that one work-group needs, in bytes.
    pub fn local_bytes(&self) -> usize {
        self.used_local
    }

    /// Sets the addresses of by-value arguments; nothing may be added afterwards.
    fn seal(&mut self) {
        let base = self.values.as_mut_ptr().expose_provenance();
        for &(index, from) in &self.by_value {
            self.table[index] = base + from;
        }
        self.table.resize(self.table.len() + SPARE_ARGS, missing());
    }
}

fn bytes_of(lines: &mut [Line]) -> &mut [u8] {
    let bytes = size_of_val(lines);
    // SAFETY: `Line` is `repr(C)`, has no padding, and the slice's lines are contiguous.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), bytes) }
}

/// A kernel that is ready to run.
pub struct Launch {
    function: Function,
    form: Form,
    range: NdRange,
    args: Args,
    /// Holds the function's code in memory.
    _code: Option<Arc<dyn Any + Send + Sync>>,
}

impl Launch {
    /// # Safety
    /// `function` may be called with `args` for every item of `range`, on any thread and
    /// concurrently for different work-groups, while `code` lives.
    pub unsafe fn new(
        function: Function,
        form: Form,
        range: NdRange,
        mut args: Args,
        code: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        args.seal();
        Self {
            function,
            form,
            range,
            args,
            _code: code,
        }
    }

    pub fn range(&self) -> &NdRange {
        &self.range
    }

    /// Whether a thread needs [`Scratch::provide`] before it runs this.
    pub fn needs_local(&self) -> bool {
        self.args.used_local > 0
    }

    /// Runs some of the work-groups, numbered with the first dimension fastest.
    pub fn run(&self, groups: Range<usize>, scratch: &mut Scratch) {
        let patched;
        let table = if self.args.local.is_empty() {
            &self.args.table
        } else {
            patched = self.table_with_local(scratch.address());
            &patched
        };
        let mut state = self.state();
        for group in groups {
            let [x, y, _] = self.range.groups;
            state.group_id = [group % x, group / x % y, group / x / y];
            match self.form {
                Form::Item => self.run_items(table, &mut state),
                Form::Group => {
                    self.set_item(&mut state, [0; 3]);
                    self.call(table, &mut state);
                }
            }
        }
    }

    fn run_items(&self, table: &[usize], state: &mut WorkItemState) {
        let [x, y, z] = self.range.local;
        state.sub_group_id = 0;
        for c in 0..z {
            for b in 0..y {
                for a in 0..x {
                    self.set_item(state, [a, b, c]);
                    self.call(table, state);
                    state.sub_group_id = state.sub_group_id.wrapping_add(1);
                }
            }
        }
    }

    fn set_item(&self, state: &mut WorkItemState, local: [usize; 3]) {
        state.local_id = local;
        for (axis, &own) in local.iter().enumerate() {
            let base = state.group_id[axis] * self.range.local[axis];
            state.global_id[axis] = self.range.offset[axis] + base + own;
        }
    }

    fn call(&self, table: &[usize], state: &mut WorkItemState) {
        // SAFETY: `new` promises that the function may be called like this.
        unsafe { (self.function)(table.as_ptr().cast(), state) }
    }

    fn table_with_local(&self, base: usize) -> Vec<usize> {
        let mut table = self.args.table.clone();
        for &(index, offset) in &self.args.local {
            table[index] = base + offset;
        }
        table
    }

    fn state(&self) -> WorkItemState {
        let NdRange {
            offset,
            groups,
            local,
        } = self.range;
        WorkItemState {
            global_range: std::array::from_fn(|axis| groups[axis] * local[axis]),
            group_size: local,
            groups,
            global_offset: offset,
            // Sub-groups of one item: the item's number in its group is the sub-group's.
            sub_groups: u32::try_from(local.iter().product::<usize>()).unwrap_or(u32::MAX),
            sub_group_size: 1,
            ..WorkItemState::default()
        }
    }
}
