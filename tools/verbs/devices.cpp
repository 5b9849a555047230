// lenslet devices: lists the processors, and whether this build can use them.

#include "lenslet/device.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/verbs/common_options.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

void print_text(const DeviceReport& report) {
  for (const DeviceInfo& device : report.devices)
    fmt::print("{:<8} {:<8} {}, {}, {} {}, {:.1f} GiB\n", device.id, device.usable ? "usable" : "unusable",
               device.name.empty() ? "unknown model" : device.name,
               device.architecture.empty() ? "unknown architecture" : device.architecture, device.cores,
               device.id == "cpu" ? "cores" : "multiprocessors", static_cast<double>(device.memory_bytes) / (1 << 30));
  for (const DeviceInfo& device : report.devices)
    for (const std::string& words : {device.reason, device.note})
      if (!words.empty()) fmt::print("{}: {}\n", device.id, words);
  const CudaInfo& cuda = report.cuda;
  if (cuda.built)
    fmt::print("CUDA     runtime {}, driver {}, built for {}\n", cuda.runtime,
               cuda.driver.empty() ? "none" : cuda.driver, cuda.compiled);
  if (!cuda.reason.empty()) fmt::print("CUDA     not usable: {}\n", cuda.reason);
}

void print_json(const DeviceReport& report) {
  nlohmann::json document;
  for (const DeviceInfo& device : report.devices)
    document["devices"].push_back({{"id", device.id},
                                   {"name", device.name},
                                   {"architecture", device.architecture},
                                   {"cores", device.cores},
                                   {"memory_bytes", device.memory_bytes},
                                   {"usable", device.usable},
                                   {"runs_models", device.usable},
                                   {"reason", device.reason},
                                   {"note", device.note}});
  const CudaInfo& cuda = report.cuda;
  document["cuda"] = {{"built", cuda.built},
                      {"runtime", cuda.runtime},
                      {"driver", cuda.driver},
                      {"built_for", cuda.compiled},
                      {"reason", cuda.reason}};
  PlanOptions on_cpu;
  on_cpu.device = "cpu";
  print_document(std::move(document), on_cpu);
}

}  // namespace

void add_devices(CLI::App& app, ExitCode& result) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("devices", "List the CPU and CUDA devices, and why one cannot be used");
  add_json_option(*verb, *json);
  add_examples(*verb,
               "lenslet devices\n"
               "lenslet devices --json");
  verb->callback([json, &result] {
    const DeviceReport report = query_devices();
    if (*json)
      print_json(report);
    else
      print_text(report);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
