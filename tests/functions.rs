//! The list of functions agrees with the tables and with the parameter structs.

#![allow(non_snake_case)]

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

use ur::abi::*;
use ur::{for_each_function, for_each_loader_function};

/// Number, name and argument types, written by hand.
type Entry = (usize, &'static str, Vec<&'static str>);

macro_rules! entries {
    ($( $table:tt $struct:tt { $(
        $name:ident $slot:tt $pfn:ident $params:tt $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        fn entries() -> Vec<Entry> {
            Vec::from([ $( $(
                (number::$name, stringify!($name), Vec::from([ $( std::any::type_name::<$ty>() ),* ]))
            ),* ),* ])
        }
        /// Each function's arguments, according to its pointer type.
        fn signatures() -> usize {
            $( $( {
                unsafe extern "C" fn same($( $arg: $ty ),*) -> ur_result_t {
                    $( let _ = $arg; )*
                    UR_RESULT_SUCCESS
                }
                let pointer: $pfn = Some(same);
                assert!(pointer.is_some());
            } )* )*
            entries().len()
        }
    };
}
for_each_function! { for_each_loader_function entries }

#[test]
fn every_function_has_its_own_number_and_its_pointer_s_arguments() {
    let entries = entries();
    for (at, (number, name, _)) in entries.iter().enumerate() {
        assert_eq!(at, *number, "{name}");
    }
    assert_eq!(signatures(), 251);
}

macro_rules! slots {
    ($( $table:ident $struct:ident { $(
        $name:ident $slot:ident $pfn:ident $params:ident $leader:tt (
            $( $arg:ident : $ty:ty = $mutability:tt $field:ident $form:tt ),*
        )
    )* } )*) => {
        /// Each table's slots by offset, and the sizes of the parameter structs.
        fn slots() -> Vec<(&'static str, Vec<usize>)> {
            Vec::from([ $( (stringify!($table), Vec::from([ $( offset_of!($struct, $slot) ),* ])) ),* ])
        }
        fn members() -> Vec<(&'static str, usize, Vec<usize>)> {
            Vec::from([ $( $( (
                stringify!($name),
                size_of::<$params>(),
                Vec::from([ $( offset_of!($params, $field) ),* ]),
            ) ),* ),* ])
        }
    };
}
for_each_function! { slots }

#[test]
fn tables_and_parameter_structs_lie_as_the_list_says() {
    let word = size_of::<usize>();
    let slots = slots();
    assert_eq!(slots.len(), DDI_TABLES.len());
    for ((name, offsets), table) in slots.iter().zip(DDI_TABLES) {
        assert_eq!((*name, offsets.len()), (table.name, table.slots));
        let want: Vec<_> = (0..table.slots).map(|at| at * word).collect();
        assert_eq!(*offsets, want, "{name}");
    }
    for (name, size, offsets) in members() {
        let want: Vec<_> = (0..size / word).map(|at| at * word).collect();
        assert_eq!(offsets, want, "{name}");
    }
}
