// lenslet scan: writes a simulated LiDAR scan of a street, as input for sparse networks.

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "lenslet/error.h"
#include "lenslet/tensor_file.h"
#include "tools/scans/lidar_scan.h"
#include "tools/scans/read_points.h"
#include "tools/verbs/common_options.h"
#include "tools/verbs/verbs.h"

namespace lenslet::tool {

namespace {

struct Options : ScanOptions {
  std::filesystem::path file;
};

void write_scan(const Options& options) {
  const auto extension = options.file.extension();
  if (extension != ".npy" && extension != ".bin")
    throw Error(ErrorKind::invalid_argument, "a scan is written to a file that ends in .bin or .npy",
                options.file.string());
  const Tensor points = lidar_scan(options);
  if (extension == ".npy")
    write_npy(options.file, points);
  else
    write_points(options.file, points);
  fmt::print("{}: {} points of {} float32\n", options.file.string(), points.shape()[0], points.shape()[1]);
}

}  // namespace

void add_scan(CLI::App& app, ExitCode& result) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("scan", "Draw a street and scan it as a LiDAR does, for sparse networks");
  constexpr int most = 1 << 20;
  verb->add_option("file", options->file,
                   "Where the points go: .bin (float32 rows, as KITTI and nuScenes have them) or .npy")
      ->required();
  verb->add_option("--rings", options->rings, "Lasers above each other")
      ->transform(whole_number(1, most))
      ->capture_default_str();
  verb->add_option("--steps", options->steps, "Shots of a laser in a turn")
      ->transform(whole_number(1, most))
      ->capture_default_str();
  verb->add_option("--sweeps", options->sweeps, "Turns, a metre apart, as seen from the last one")
      ->transform(whole_number(1, most))
      ->capture_default_str();
  verb->add_option("--columns", options->columns, "4: x, y, z, reflectance; 5: and the seconds before the last turn")
      ->transform(whole_number(4, 5))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Another seed, another street")
      ->transform(whole_number(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  add_examples(*verb,
               "lenslet scan street.bin\n"
               "lenslet scan street.npy --sweeps 10 --columns 5 --seed 7");
  verb->callback([options, &result] {
    write_scan(*options);
    result = exit_ok;
  });
}

}  // namespace lenslet::tool
