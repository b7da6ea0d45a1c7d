//! Kernel launches as a driver receives them, and their attributes.

use crate::abi::*;
use crate::object::{Result, chain, ensure};
use crate::stream::work::transfer;

/// A kernel launch as the queue received it; sizes are in work items.
pub struct LaunchRequest<'a> {
    pub dims: u32,
    pub offset: [usize; 3],
    pub global: [usize; 3],
    /// Work-group size, or none for the driver's choice.
    pub local: Option<[usize; 3]>,
    pub args: &'a [ur_exp_kernel_arg_properties_t],
    pub properties: Option<&'a ur_kernel_launch_ext_properties_t>,
}

/// A launch with only sizes and arguments, as nearly all are. All sizes have the same one to three
/// dimensions.
#[derive(Clone, Copy)]
pub struct PlainLaunch<'a> {
    pub offset: Option<&'a [usize]>,
    pub global: &'a [usize],
    /// Work-group size, or none for the driver's choice.
    pub local: Option<&'a [usize]>,
    pub args: &'a [ur_exp_kernel_arg_properties_t],
}

/// Attributes of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchAttributes {
    /// All work-groups are resident at once.
    pub cooperative: bool,
    /// The launch may start before the launch before it has ended, as far as that one allows it.
    pub opportunistic: bool,
    /// Work-groups of a cluster, slowest-varying dimension first.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of local memory for each work-group, beside the arguments'.
    pub group_memory: Option<usize>,
}

impl<'a> LaunchRequest<'a> {
    /// The request of an entry point with sizes of `dims` dimensions.
    #[inline(always)]
    pub fn new(
        dims: u32,
        launch: PlainLaunch<'a>,
        properties: Option<&'a ur_kernel_launch_ext_properties_t>,
    ) -> Result<Self> {
        ensure(
            (1..=3).contains(&dims),
            UR_RESULT_ERROR_INVALID_WORK_DIMENSION,
        )?;
        Ok(Self {
            dims,
            offset: launch
                .offset
                .map_or([0; 3], |offset| transfer::three(offset, 0)),
            global: transfer::three(launch.global, 1),
            local: launch.local.map(|local| transfer::three(local, 1)),
            args: launch.args,
            properties,
        })
    }
}

impl LaunchRequest<'_> {
    /// The attributes of the request. An error if the device lacks one.
    pub fn attributes(
        &self,
        able: ur_kernel_launch_properties_flags_t,
    ) -> Result<LaunchAttributes> {
        let Some(head) = self.properties else {
            return Ok(LaunchAttributes::default());
        };
        let (cluster, group_memory) = (
            UR_STRUCTURE_TYPE_KERNEL_LAUNCH_CLUSTER_PROPERTY,
            UR_STRUCTURE_TYPE_KERNEL_LAUNCH_WORKGROUP_PROPERTY,
        );
        // SAFETY: the caller's chain consists of live structs tagged as what they are.
        let (other, cluster, group_memory) = unsafe {
            (
                chain::has_other(head.pNext, &[cluster, group_memory]),
                chain::find::<ur_kernel_launch_cluster_property_t>(head.pNext, cluster),
                chain::find::<ur_kernel_launch_workgroup_property_t>(head.pNext, group_memory),
            )
        };
        let own = head.stype == UR_STRUCTURE_TYPE_KERNEL_LAUNCH_EXT_PROPERTIES;
        ensure(own && !other, UR_RESULT_ERROR_INVALID_OPERATION)?;
        let attributes = LaunchAttributes {
            cooperative: head.flags.contains(UR_KERNEL_LAUNCH_FLAG_COOPERATIVE),
            opportunistic: head
                .flags
                .contains(UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE),
            cluster: cluster.map(|property| property.clusterDim),
            group_memory: group_memory.map(|property| property.workgroup_mem_size),
        };
        ensure(
            attributes.needs() & !able.0 == 0,
            UR_RESULT_ERROR_INVALID_OPERATION,
        )?;
        Ok(attributes)
    }
}

impl LaunchAttributes {
    /// The flags of the properties that a device must have.
    fn needs(&self) -> u32 {
        let each = [
            (
                self.cooperative,
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE,
            ),
            (
                self.opportunistic,
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE,
            ),
            (
                self.cluster.is_some(),
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION,
            ),
            (
                self.group_memory.is_some(),
                UR_KERNEL_LAUNCH_PROPERTIES_FLAG_WORK_GROUP_MEMORY,
            ),
        ];
        let wanted = each.into_iter().filter(|(wanted, _)| *wanted);
        wanted.fold(0, |bits, (_, flag)| bits | flag.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Error;
    use std::ffi::c_void;

    const NOTHING: ur_kernel_launch_properties_flags_t = ur_kernel_launch_properties_flags_t(0);

    fn ask(
        head: &ur_kernel_launch_ext_properties_t,
        able: ur_kernel_launch_properties_flags_t,
    ) -> std::result::Result<LaunchAttributes, ur_result_t> {
        let request = LaunchRequest {
            dims: 1,
            offset: [0; 3],
            global: [1; 3],
            local: None,
            args: &[],
            properties: Some(head),
        };
        request.attributes(able).map_err(Error::code)
    }

    fn head(chain: *mut c_void) -> ur_kernel_launch_ext_properties_t {
        ur_kernel_launch_ext_properties_t {
            pNext: chain,
            ..Default::default()
        }
    }

    #[test]
    fn what_the_device_is_not_able_to_do_is_refused() {
        let refused = Err(UR_RESULT_ERROR_INVALID_OPERATION);
        let mut plain = head(std::ptr::null_mut());
        assert_eq!(ask(&plain, NOTHING), Ok(LaunchAttributes::default()));
        plain.flags = UR_KERNEL_LAUNCH_FLAG_COOPERATIVE;
        assert_eq!(ask(&plain, NOTHING), refused);
        let cooperative = ask(&plain, UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE);
        assert!(cooperative.is_ok_and(|attributes| attributes.cooperative));
        plain.flags = UR_KERNEL_LAUNCH_FLAG_OPPORTUNISTIC_QUEUE_SERIALIZE;
        let other = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_COOPERATIVE;
        assert_eq!(ask(&plain, other), refused);
    }

    #[test]
    fn a_chain_is_read_to_its_end_and_knows_all_its_links() {
        let mut memory = ur_kernel_launch_workgroup_property_t {
            workgroup_mem_size: 64,
            ..Default::default()
        };
        let mut cluster = ur_kernel_launch_cluster_property_t {
            clusterDim: [1, 2, 3],
            pNext: (&raw mut memory).cast(),
            ..Default::default()
        };
        let both = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION
            | UR_KERNEL_LAUNCH_PROPERTIES_FLAG_WORK_GROUP_MEMORY;
        let refused = Err(UR_RESULT_ERROR_INVALID_OPERATION);
        let chained = head((&raw mut cluster).cast());
        let found = ask(&chained, both).unwrap_or_default();
        assert_eq!(
            (found.cluster, found.group_memory),
            (Some([1, 2, 3]), Some(64))
        );
        let cluster_only = UR_KERNEL_LAUNCH_PROPERTIES_FLAG_CLUSTER_DIMENSION;
        assert_eq!(ask(&chained, cluster_only), refused);
        let mut stranger = ur_usm_host_desc_t::default();
        assert_eq!(ask(&head((&raw mut stranger).cast()), both), refused);
        let mut disguised = head(std::ptr::null_mut());
        disguised.stype = UR_STRUCTURE_TYPE_USM_DESC;
        assert_eq!(ask(&disguised, both), refused);
    }
}
