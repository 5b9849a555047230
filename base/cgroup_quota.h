#pragma once
// CPU time that Linux control groups grant a process.

#include <istream>
#include <string>

namespace lenslet {

/// CPU time in cores, the least over the process's groups and their parents; 0 when unlimited or unreadable. `root` is
/// the cgroup mount (/sys/fs/cgroup); `own` is the text of /proc/self/cgroup, lines of "ID:CONTROLLERS:PATH". Version 2
/// has "QUOTA PERIOD" or "max PERIOD" in cpu.max; version 1 has cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us in
/// the folder of its cpu controller.
double cgroup_cpu_quota(const std::string& root, std::istream& own);

}  // namespace lenslet
