//! Devices by name.

use softroce_verbs::{Error, devices, open};

#[test]
fn a_name_that_is_no_device_is_an_error_that_names_those_there_are() {
    let name = "no-such-device0";
    let error = open(name).unwrap_err();
    assert!(matches!(error, Error::NoDevice { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(name), "{message}");
    for device in devices() {
        assert!(message.contains(device.name()), "{message}");
    }
    assert!(open("no-such-device0@300").is_err());
}
