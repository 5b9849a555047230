#include "tools/verbs/provenance.h"

#include "lenslet/device.h"
#include "lenslet/version.h"
#include "lenslet_commit.h"  // made by every build (tools/CMakeLists.txt)

namespace lenslet::tool {

namespace {

constexpr std::string_view commit = LENSLET_COMMIT;

}  // namespace

std::string version_text() {
  std::string text = LENSLET_VERSION;
  if (!commit.empty()) text.append(" (").append(commit).append(")");
  return text;
}

nlohmann::ordered_json provenance(const PlanOptions& plan) {
  const DeviceInfo cpu = query_cpu();
  nlohmann::ordered_json machine = {{"lenslet", LENSLET_VERSION},
                                    {"commit", commit},
                                    {"cpu", cpu.name},
                                    {"instruction_set", cpu.architecture},
                                    {"cores", cpu.cores},
                                    {"threads", plan.threads > 0 ? plan.threads : cpu.cores}};
  if (const DeviceChoice device = choose_device(plan.device); device.is_cuda()) machine["gpu"] = device.name;
  return machine;
}

}  // namespace lenslet::tool
