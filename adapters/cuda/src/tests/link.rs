//! Links that the driver refuses.

use std::ffi::CStr;
use std::ptr::{dangling_mut, null};

use ur::abi::*;

use super::fake_driver::{FakeDriver, alone, ur};
use super::test_context::{PLAIN, TestContext, made};

/// A failed link gives no program, and the message of the driver's linker is the adapter's last error.
#[test]
fn a_failed_link_says_why() {
    alone("tests::link::a_failed_link_says_why", || {
        let driver = FakeDriver::open();
        let test_context = TestContext::new(4);
        let mut device = test_context.device;
        let program = made(test_context.context, device, PLAIN);
        let both = [program; 2];
        let (mut plain, mut chosen) = (dangling_mut(), dangling_mut());
        let flags = ur_exp_program_flags_t(0);
        let results = [
            ur!(Program.pfnLink(test_context.context, 2, both.as_ptr(), null(), &mut plain)),
            ur!(ProgramExp.pfnLinkExp(
                test_context.context,
                1,
                &mut device,
                flags,
                2,
                both.as_ptr(),
                null(),
                &mut chosen
            )),
        ];
        assert!(!results.contains(&UR_RESULT_SUCCESS), "{results:?}");
        assert!(
            plain.is_null() && chosen.is_null(),
            "a program all the same"
        );
        let (code, said) = ur::object::last_error();
        // SAFETY: valid until this thread's next failure.
        let said = unsafe { CStr::from_ptr(said) };
        assert_eq!(
            (code, said),
            (1, c"error : Undefined reference to 'absent'"),
            "the code and the log of cuLinkCreate"
        );
        assert_eq!(ur!(Program.pfnRelease(program)), UR_RESULT_SUCCESS);
        test_context.end(&driver);
    });
}
