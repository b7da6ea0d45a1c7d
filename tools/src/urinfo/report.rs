//! Prints an inventory as text.

use std::fmt::{self, Display};

use crate::inventory::{Device, Inventory, Platform, Properties};

/// Prints one line per device: its selectors, platform, name and versions.
pub struct Short<'a>(pub &'a Inventory);

impl Display for Short<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for platform in self.0.platforms() {
            for device in &platform.devices {
                writeln!(out, "{}", line(platform, device))?;
            }
        }
        Ok(())
    }
}

/// Prints every property of every object.
pub struct Long<'a>(pub &'a Inventory);

impl Display for Long<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "loader {}", self.0.loader)?;
        properties(out, &self.0.properties)?;
        for adapter in &self.0.adapters {
            writeln!(out, "\nadapter {}", adapter.backend)?;
            properties(out, &adapter.properties)?;
            for platform in &adapter.platforms {
                let name = platform.properties.text("UR_PLATFORM_INFO_NAME");
                writeln!(out, "\nplatform {name}")?;
                let version = platform.api_version.as_deref().unwrap_or("unknown");
                writeln!(out, "  urPlatformGetApiVersion: {version}")?;
                properties(out, &platform.properties)?;
                for device in &platform.devices {
                    writeln!(out, "\n{}", line(platform, device))?;
                    properties(out, &device.properties)?;
                }
            }
        }
        Ok(())
    }
}

fn line(platform: &Platform, device: &Device) -> String {
    let selectors: String = device
        .selectors
        .iter()
        .map(|one| format!("[{one}]"))
        .collect();
    format!(
        "{selectors} {}, {} {} [{}]",
        platform.properties.text("UR_PLATFORM_INFO_NAME"),
        device.properties.text("UR_DEVICE_INFO_NAME"),
        device.properties.text("UR_DEVICE_INFO_VERSION"),
        device.properties.text("UR_DEVICE_INFO_DRIVER_VERSION"),
    )
}

fn properties(out: &mut fmt::Formatter<'_>, properties: &Properties) -> fmt::Result {
    for name in &properties.order {
        match (properties.info.get(name), properties.missing.get(name)) {
            (Some(value), _) => writeln!(out, "  {name}: {value}")?,
            (None, Some(reason)) => writeln!(out, "  {name}: {reason}")?,
            (None, None) => {}
        }
    }
    Ok(())
}
