#include "tests/ops/op_runner.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/aligned_format.h"

namespace lenslet::test {
namespace {

std::string joined(const std::vector<Format>& formats) {
  std::string text;
  for (const Format& format : formats) text += (text.empty() ? "" : ",") + to_string(format);
  return text;
}

/// The invariants of candidates in kernel.h.
void check_candidate(const Problem& problem, const Candidate& candidate, const std::string& where) {
  REQUIRE_MESSAGE(candidate.inputs.size() == problem.inputs().size(), where);
  REQUIRE_MESSAGE(candidate.outputs.size() == problem.outputs().size(), where);
  for (std::size_t i = 0; i < candidate.inputs.size(); ++i) {
    const InputInfo& input = problem.inputs()[i];
    if (input.constant != nullptr || input.type.shape.rank() != 4)
      CHECK_MESSAGE(candidate.inputs[i] == formats::nchw, where, ": input ", i, " cannot be in another format");
  }
  for (std::size_t i = 0; i < candidate.outputs.size(); ++i)
    if (problem.output_shape(i).rank() != 4)
      CHECK_MESSAGE(candidate.outputs[i] == formats::nchw, where, ": output ", i, " cannot be in another format");
  CHECK_MESSAGE((std::isfinite(candidate.estimated_us) && candidate.estimated_us >= 0), where);
  CHECK_MESSAGE((std::isfinite(candidate.tolerance) && candidate.tolerance >= 0), where);
}

/// A plan may come from a file, which may be damaged.
void check_damaged_configs(const Call& call, const std::string& where) {
  const std::string& config = call.candidate.config;
  if (config.empty()) return;  // nothing to read
  Candidate damaged = call.candidate;
  for (const std::string& text : {"x" + config, config + " x=1", std::string()}) {
    damaged.config = text;
    std::optional<ErrorKind> refused;
    try {
      (void)call.kernel.bind({call.problem, damaged, call.device});
    } catch (const Error& error) {
      refused = error.kind();
    }
    CHECK_MESSAGE(refused == ErrorKind::invalid_argument, where, ": configuration '", text, "' is not refused");
  }
}

/// Inputs that output 0 may overwrite, and -1.
std::vector<int> overwritten_inputs(const Problem& problem, const Candidate& candidate) {
  std::vector<int> list{-1};
  for (std::size_t i = 0; i < problem.inputs().size(); ++i) {
    const InputInfo& input = problem.inputs()[i];
    if (input.present && input.constant == nullptr && (candidate.in_place & input_bit(i)) != 0 &&
        input.type == problem.outputs()[0] && candidate.inputs[i] == candidate.outputs[0])
      list.push_back(static_cast<int>(i));
  }
  return list;
}

}  // namespace

bool key_decides_blob(const Kernel& kernel, const Problem& problem, const Candidate& candidate) {
  std::vector<InputInfo> inputs(problem.inputs().begin(), problem.inputs().end());
  std::vector<Tensor> others(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor* const constant = inputs[i].constant;
    if (constant == nullptr || constant->dtype() != DType::f32 || (candidate.reads & input_bit(i)) == 0) continue;
    others[i] = Tensor(DType::f32, constant->shape());
    std::ranges::transform(constant->values<float>(), others[i].values<float>().begin(),
                           [](float value) { return value / 2 + 0.125F; });
    inputs[i].constant = &others[i];
  }
  const Problem changed(problem.shared_op(), inputs, {problem.outputs().begin(), problem.outputs().end()});
  const auto spec = kernel.blob(problem, candidate), other = kernel.blob(changed, candidate);
  if (!spec || !other || spec->key != other->key) return true;
  const Tensor a = lenslet::prepared_blob(kernel, problem, candidate);
  const Tensor b = lenslet::prepared_blob(kernel, changed, candidate);
  return std::memcmp(a.data(), b.data(), spec->bytes) == 0;
}

namespace {

/// The packed weights, in memory of the runner's device; null if there are none.
std::unique_ptr<Block> prepared_blob(const OpRunner& runner, const Call& call, const std::string& where) {
  const std::optional<BlobSpec> spec = call.kernel.blob(call.problem, call.candidate);
  if (!spec) return nullptr;
  CHECK_MESSAGE(!spec->key.empty(), where, ": a blob without a key");
  CHECK_MESSAGE(key_decides_blob(call.kernel, call.problem, call.candidate), where,
                ": the blob depends on constants that are not in its key");
  HostBlock first(spec->bytes, spec->alignment), second(spec->bytes, spec->alignment);
  std::memset(second.data(), 0x5A, second.bytes());  // reveals unwritten bytes
  for (HostBlock* blob : {&first, &second}) {
    call.kernel.prepare(call.problem, call.candidate, {blob->data(), blob->bytes()});
    CHECK_MESSAGE(blob->intact(), where, ": bytes around the blob were written");
  }
  CHECK_MESSAGE(first.read() == second.read(), where, ": the blob prepared again has other bytes");
  std::unique_ptr<Block> blob = runner.block(spec->bytes, spec->alignment);
  blob->write(first.data());
  return blob;
}

}  // namespace

std::string Call::str() const {
  const auto constants = std::count_if(problem.inputs().begin(), problem.inputs().end(),
                                       [](const InputInfo& input) { return input.constant != nullptr; });
  return fmt::format("{} {}{}{} to {}, units={} constants={} in_place={}", kernel.name(), candidate.config,
                     candidate.config.empty() ? "" : ", ", joined(candidate.inputs), joined(candidate.outputs),
                     device.units, constants, in_place);
}

bool contains(const std::vector<int>& list, std::size_t value) {
  return std::find(list.begin(), list.end(), static_cast<int>(value)) != list.end();
}

std::size_t stored_bytes(const TensorType& type, const Format& format) {
  return static_cast<std::size_t>(Strides(format, type.shape).stored) * dtype_bytes(type.dtype);
}

std::vector<InputInfo> infos_of(const std::vector<Tensor>& inputs, const std::vector<int>& constant) {
  std::vector<InputInfo> infos;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    infos.push_back({!input.empty(), {input.dtype(), input.shape()}, contains(constant, i) ? &input : nullptr});
  }
  return infos;
}

namespace {

/// The candidate with padded pixels wherever it allows them; empty if it never does.
std::optional<Candidate> pitched(const Problem& problem, Candidate candidate, DeviceKind device) {
  bool any = false;
  const auto widen = [&](Format& format, const TensorType& type) {
    if (type.shape.rank() != 4 || !(format == formats::nhwc || format == aligned_nhwc(type.shape[1], type.dtype)))
      return;
    if (!dtypes<WithHalves<Types<float, std::int8_t, std::uint8_t>>>.contains(type.dtype)) return;
    const auto unit = static_cast<std::int64_t>(16 / dtype_bytes(type.dtype));
    format.pixel_pitch = device == DeviceKind::cpu ? type.shape[1] + 5 : (type.shape[1] / unit + 2) * unit;
    any = true;
  };
  for (std::size_t i = 0; i < candidate.inputs.size(); ++i)
    if ((candidate.pitched_inputs & input_bit(i)) != 0 && problem.inputs()[i].constant == nullptr)
      widen(candidate.inputs[i], problem.inputs()[i].type);
  if (candidate.pitched_output) widen(candidate.outputs[0], problem.outputs()[0]);
  return any ? std::optional(std::move(candidate)) : std::nullopt;
}

bool same_bytes(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

std::vector<std::string> for_each_call(const OpRunner& runner, const Problem& problem, const Kernel& kernel,
                                       int threads, const std::function<void(const Call&)>& f,
                                       const Numerics& numerics) {
  std::vector<std::string> refusals;
  for (const DeviceProfile& device : runner.profiles(threads)) {
    const Offer offer = kernel.offer(problem, {.device = device, .numerics = numerics});
    CHECK_MESSAGE(offer.refusal.empty() != offer.candidates.empty(), std::string(kernel.name()),
                  " refuses without a reason, or offers all the same");
    if (!offer.refusal.empty()) refusals.push_back(fmt::format("{}: {}", kernel.name(), offer.refusal));
    for (const Candidate& candidate : offer.candidates) {
      Call call{.problem = problem, .kernel = kernel, .candidate = candidate, .device = device};
      check_candidate(problem, candidate, call.str());
      check_damaged_configs(call, call.str());
      for (const int in_place : overwritten_inputs(problem, candidate)) {
        call.in_place = in_place;
        f(call);
      }
      if (kernel.device() == DeviceKind::cpu && device.units != threads) continue;
      if (const auto among_others = pitched(problem, candidate, kernel.device()))
        f({.problem = problem, .kernel = kernel, .candidate = *among_others, .device = device});
    }
  }
  return refusals;
}

namespace {

/// For each byte, whether it belongs to an element; others are padding of channel blocks or between pixels.
std::vector<bool> of_elements(const Tensor& stored) {
  Tensor ones(stored.dtype(), stored.shape());
  std::memset(ones.data(), 0x01, ones.bytes());
  const Tensor mask = ones.to_format(stored.format());
  std::vector<bool> list(stored.bytes());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = static_cast<const std::byte*>(mask.data())[i] != std::byte{0};
  return list;
}

/// Poisons the padding: a kernel that uses it shows.
void poison_padding(Tensor& stored) {
  const Format& format = stored.format();
  if (stored.shape().rank() != 4 || format.halo != Format::Halo()) return;
  if (format.channel_block == 1 && format.pixel_pitch == 0) return;
  const std::vector<bool> element = of_elements(stored);
  auto* bytes = static_cast<std::byte*>(stored.data());
  for (std::size_t i = 0; i < element.size(); ++i)
    if (!element[i]) bytes[i] = Block::poison;
}

/// Bytes of its block; on CUDA including what may be written after the last pixel.
std::size_t block_bytes(const TensorType& type, const Format& format, DeviceKind device) {
  constexpr std::size_t unit = 16;
  const std::size_t bytes = stored_bytes(type, format);
  return device == DeviceKind::cpu || format.pixel_pitch == 0 ? bytes : (bytes + unit - 1) / unit * unit;
}
void write(Block& block, const Tensor& stored) {
  std::vector<std::byte> bytes(block.bytes(), Block::poison);
  if (!bytes.empty()) std::memcpy(bytes.data(), stored.data(), std::min(bytes.size(), stored.bytes()));
  block.write(bytes.data());
}

/// Whether the bytes between pixels are unchanged. On CUDA the rest of a 16-byte unit may be written.
bool between_pixels_intact(const Tensor& stored, DeviceKind device) {
  const Format& format = stored.format();
  if (format.pixel_pitch == 0) return true;
  const std::int64_t channels =
      device == DeviceKind::cpu ? stored.shape()[1] : aligned_channels(stored.shape()[1], stored.dtype());
  const std::vector<bool> element = of_elements(Tensor(stored.dtype(), stored.shape().with(1, channels), format));
  for (std::size_t i = 0; i < std::min(element.size(), stored.bytes()); ++i)
    if (!element[i] && static_cast<const std::byte*>(stored.data())[i] != Block::poison) return false;
  return true;
}

}  // namespace

namespace {
bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}
}  // namespace

std::vector<Tensor> run_between_guards(const OpRunner& runner, const Call& call, std::span<const Tensor> values,
                                       const std::string& where) {
  const Problem& problem = call.problem;
  const Candidate& candidate = call.candidate;
  const std::unique_ptr<const BoundKernel> bound = call.kernel.bind({problem, candidate, call.device});
  REQUIRE_MESSAGE(bound != nullptr, where);

  std::vector<std::unique_ptr<Block>> output_blocks, input_blocks(values.size());
  std::vector<Tensor> outputs, inputs(values.size()), before(values.size());
  for (std::size_t i = 0; i < problem.outputs().size(); ++i) {
    const TensorType& type = problem.outputs()[i];
    output_blocks.push_back(runner.value_block(block_bytes(type, candidate.outputs[i], call.kernel.device())));
    outputs.push_back(Tensor::view(type.dtype, type.shape, output_blocks[i]->data(), candidate.outputs[i]));
    // Among integers poison is -1 or 255, which may be a valid result.
    const bool floats = is_floating(type.dtype);
    if (floats || candidate.outputs[i].pixel_pitch != 0) continue;
    output_blocks[i]->write(std::vector<std::byte>(output_blocks[i]->bytes(), std::byte{0x5A}).data());
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    // A constant that the kernel claims not to read is missing: reading it fails.
    const bool constant = problem.inputs()[i].constant != nullptr;
    if (values[i].empty() || (constant && (candidate.reads & input_bit(i)) == 0)) continue;
    before[i] = values[i].to_format(candidate.inputs[i]);
    poison_padding(before[i]);
    if (call.in_place != static_cast<int>(i)) {
      input_blocks[i] = runner.value_block(
          block_bytes({before[i].dtype(), before[i].shape()}, candidate.inputs[i], call.kernel.device()));
      write(*input_blocks[i], before[i]);
    }
    Block& block = input_blocks[i] != nullptr ? *input_blocks[i] : *output_blocks[0];
    inputs[i] = Tensor::view(before[i].dtype(), before[i].shape(), block.data(), candidate.inputs[i]);
  }
  const std::unique_ptr<Block> blob = prepared_blob(runner, call, where);
  const std::vector<std::byte> blob_before = blob != nullptr ? blob->read() : std::vector<std::byte>();
  const std::unique_ptr<Block> workspace = runner.block(candidate.workspace_bytes);
  if (!is_floating(problem.outputs()[0].dtype))  // unwritten counts; -1 is a frequent valid value
    workspace->write(std::vector<std::byte>(workspace->bytes(), std::byte{0x5A}).data());

  // Twice with the same workspace: what the first run leaves behind (such as counters) must not affect the second.
  std::vector<std::vector<std::byte>> first;
  for (const bool again : {false, true}) {
    if (call.in_place >= 0) write(*output_blocks[0], before[static_cast<std::size_t>(call.in_place)]);
    runner.run(*bound, call,
               {.inputs = inputs,
                .outputs = outputs,
                .workspace = {workspace->data(), workspace->bytes()},
                .blob = blob != nullptr ? blob->data() : nullptr});
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (!again)
        first.push_back(output_blocks[i]->read());
      else
        CHECK_MESSAGE(same_bytes(output_blocks[i]->read(), first[i]), where, ": output ", i,
                      " has other bits in the second run");
  }

  for (const std::unique_ptr<Block>& block : output_blocks)
    CHECK_MESSAGE(block->intact(), where, ": bytes around an output were written");
  CHECK_MESSAGE(workspace->intact(), where, ": bytes around the workspace were written");
  if (blob != nullptr)
    CHECK_MESSAGE((blob->intact() && same_bytes(blob->read(), blob_before)), where,
                  ": the blob or bytes around it were written");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (input_blocks[i] == nullptr) continue;
    CHECK_MESSAGE(input_blocks[i]->intact(), where, ": bytes around input ", i, " were written");
    const std::vector<std::byte> after = input_blocks[i]->read();
    CHECK_MESSAGE((after.empty() || std::memcmp(after.data(), before[i].data(), before[i].bytes()) == 0), where,
                  ": input ", i, " was written");
  }
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Tensor stored(outputs[i].dtype(), outputs[i].shape(), outputs[i].format());
    if (!first[i].empty()) std::memcpy(stored.data(), first[i].data(), stored.bytes());
    CHECK_MESSAGE(between_pixels_intact(stored, call.kernel.device()), where, ": bytes between the pixels of output ",
                  i, " were written");
    results.push_back(stored.to_format(formats::nchw));
  }
  return results;
}

}  // namespace lenslet::test
