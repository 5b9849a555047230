#pragma once
// CPU time that Linux control groups grant a process.

#include <istream>
#include <string>

namespace lenslet {

/// Cores' worth of CPU time, the least over the process's groups and their parents; 0 when there is no limit or nothing
/// can be read. `root` is where cgroups are mounted (/sys/fs/cgroup); `own` is the text of /proc/self/cgroup, lines of
/// "ID:CONTROLLERS:PATH". Version 2 keeps "QUOTA PERIOD" or "max PERIOD" in cpu.max; version 1 keeps cpu.cfs_quota_us
/// (-1: none) and cpu.cfs_period_us under the folder of its cpu controller.
double cgroup_cpu_quota(const std::string& root, std::istream& own);

}  // namespace lenslet
