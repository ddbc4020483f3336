use std::fmt;

use longhaul_units::Bytes;

use super::allowed_cpus;

/// Machine on which a measurement was made, for reports. Empty or zero where the system does not
/// say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// Model of the CPU, as it names itself.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Vector and cipher instructions that it has, of those that matter here.
    pub cpu_features: Vec<&'static str>,
    /// Physical memory.
    pub memory: Bytes,
    /// Release of the kernel.
    pub kernel: String,
    /// Congestion controls of the kernel's TCP.
    pub congestion_controls: Vec<String>,
    /// The one that is used unless another is asked for.
    pub default_congestion_control: String,
    /// Limits in bytes on the socket buffers of programs without privilege: receive and send.
    pub socket_buffer_max: [u64; 2],
}

impl Machine {
    /// Looks at this one.
    pub fn describe() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let flags = field(&cpuinfo, "flags").or(field(&cpuinfo, "Features")).unwrap_or_default();
        let has = |name: &&str| flags.split(' ').any(|flag| flag == *name);
        let controls = read("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let number = |path| read(path).trim().parse().unwrap_or(0);
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or_default().into(),
            cpus: allowed_cpus().map_or(0, |cpus| cpus.len()),
            cpu_features: CPU_FEATURES.into_iter().filter(has).collect(),
            memory: super::memory::host_memory(),
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            congestion_controls: controls.split_whitespace().map(str::to_owned).collect(),
            default_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control")
                .trim()
                .into(),
            socket_buffer_max: [
                number("/proc/sys/net/core/rmem_max"),
                number("/proc/sys/net/core/wmem_max"),
            ],
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cpus, memory, kernel, default_congestion_control: tcp, .. } = self;
        let features = self.cpu_features.join(" ");
        write!(f, "{cpus} x {cpu} ({features}), {memory}, Linux {kernel}, TCP default {tcp}")
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// x86-64 names first, then 64-bit Arm ones.
const CPU_FEATURES: [&str; 10] = [
    "avx2",
    "avx512f",
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "sha_ni",
    "asimd",
    "pmull",
    "sve",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_description() {
        let machine = Machine::describe();
        assert!(machine.cpus > 0 && machine.memory > Bytes::from_mib(1));
        assert!(machine.congestion_controls.contains(&machine.default_congestion_control));
        assert!(machine.to_string().contains(&machine.kernel));
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A CPU\nmodel name\t: another\n";
        assert_eq!(field(text, "model name"), Some("A CPU"));
        assert_eq!(field(text, "model"), None);
    }
}
