use crate::ddi::TABLES;
use crate::*;

#[test]
fn a_structure_begins_with_its_tag_and_the_next() {
    let properties = ze_device_properties_t::chained(0x10 as _);
    assert_eq!(properties.stype, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    assert_eq!(properties.pNext as usize, 0x10);
    assert_eq!(std::mem::offset_of!(ze_device_properties_t, pNext), 8);
    assert_eq!(properties.numEUsPerSubslice, 0);
    let pci = zes_pci_properties_t::default();
    assert_eq!(pci.stype, ZES_STRUCTURE_TYPE_PCI_PROPERTIES);
}

#[test]
fn values_have_names_and_unknown_ones_are_numbers() {
    assert_eq!(ZE_RESULT_ERROR_DEVICE_LOST.0, 0x7000_0001);
    assert_eq!(
        format!("{ZE_RESULT_ERROR_DEVICE_LOST:?}"),
        "ZE_RESULT_ERROR_DEVICE_LOST"
    );
    assert_eq!(format!("{:?}", ze_result_t(0x1234)), "0x1234");
    assert_eq!(VERSION, ZE_API_VERSION_1_17);
}

#[test]
fn a_table_has_what_the_version_knew() {
    let table = |getter| {
        TABLES
            .iter()
            .find(|table| table.getter == getter)
            .expect(getter)
    };
    let lists = table("zeGetCommandListProcAddrTable");
    let length = |version| lists.length(ze_api_version_t(version));
    assert_eq!(
        (length(0x1_0003), length(0x1_0004), length(0x1_0008)),
        (0, 28, 28)
    );
    assert_eq!(length(0x1_000c), 36);
    assert_eq!(length(VERSION.0), lists.functions.len());
    assert_eq!(length(VERSION.0 + 1), lists.functions.len());
    assert_eq!(table("zeGetGlobalProcAddrTable").functions[0], "zeInit");
}

#[test]
fn old_functions_are_older_than_new_ones() {
    let since = |name| {
        pfn::SINCE
            .iter()
            .find(|(of, _)| *of == name)
            .map(|(_, since)| *since)
    };
    assert_eq!(since("zeInit"), Some(0x1_0004));
    assert_eq!(since("zeInitDrivers"), Some(0x1_000c));
    assert_eq!(since("zeDeviceSynchronize"), Some(VERSION.0));
    assert_eq!(since("zeRTASBuilderCreateExt"), None);
}
