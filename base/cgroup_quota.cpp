#include "base/cgroup_quota.h"

#include <fstream>
#include <string>
#include <string_view>

namespace lenslet {
namespace {

double ratio(double quota, double period) { return quota > 0 && period > 0 ? quota / period : 0; }

// Folders are strings: GCC 12's std::filesystem::path frees memory it does not own when an allocation fails.

/// The quota in cpu.max of cgroup version 2.
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? ratio(quota, period) : 0;  // "max" does not read as a number
}

double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  return quota_file >> quota && period_file >> period ? ratio(quota, period) : 0;
}

/// The least limit from `group` ("/a/b") up to the root of the hierarchy. Inside a container the path in
/// /proc/self/cgroup is often invisible and the container's own group is mounted at the root, so the root is always
/// read.
template <typename Read>
double least_limit(const std::string& mount, std::string_view group, Read read) {
  double least = 0;
  std::string inside(group);
  if (inside == "/.." || inside.starts_with("/../")) inside.clear();  // outside what is mounted here
  while (true) {
    const double quota = read(mount + inside);
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
    if (inside.empty()) return least;
    const std::size_t last = inside.find_last_of('/');
    inside.resize(last == std::string::npos ? 0 : last);
  }
}

bool names_cpu(std::string_view controllers) {
  while (true) {
    const std::size_t comma = controllers.find(',');
    if (controllers.substr(0, comma) == "cpu") return true;
    if (comma == std::string_view::npos) return false;
    controllers.remove_prefix(comma + 1);
  }
}

}  // namespace

double cgroup_cpu_quota(const std::string& root, std::istream& own) {
  double least = 0;
  const auto limit = [&least](double quota) {
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  };
  for (std::string line; std::getline(own, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view text = line;
    const std::string_view controllers = text.substr(first + 1, second - first - 1), group = text.substr(second + 1);
    if (controllers.empty()) {
      limit(least_limit(root, group, quota_v2));
    } else if (names_cpu(controllers)) {
      // The controllers "cpu,cpuacct" share a folder of that name; "cpu" is a link to it.
      limit(least_limit(root + "/" + std::string(controllers), group, quota_v1));
      limit(least_limit(root + "/cpu", group, quota_v1));
    }
  }
  return least;
}

}  // namespace lenslet
