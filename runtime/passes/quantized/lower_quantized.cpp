// lower_quantized: on the CPU, what lies between DequantizeLinear and QuantizeLinear, and QLinearConv, is computed in
// 8 bits: convolutions that requantize, and operators on codes (ops/quantized). Runs when Transposes have been moved,
// which hide patterns, and before anything is fused in float32. Each result is within a step of its scale of what the
// nodes give in float32, mostly the same. A value that is read in float32, too, stays, with its DequantizeLinear.
#include "runtime/passes/passes.h"
#include "runtime/passes/quantized/linear.h"

namespace lenslet {

void lower_quantized(Graph& graph, const PassContext& context) {
  if (context.target.device.kind == DeviceKind::cpu) {
    for (const auto step : {move_codes, make_unsigned, make_tables, scale_codes, move_codes}) {
      GraphEdit edit(graph);
      step(edit);
      edit.finish();
    }
    GraphEdit edit(graph);
    Refusals refusals;
    lower_nodes(edit, refusals);
    finish_codes(edit);
    note_floats(edit, refusals);
    edit.finish();
  }
  for (Value& value : graph.values) value.dequantized.reset();
}

}  // namespace lenslet
