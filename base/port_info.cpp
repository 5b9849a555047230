#include "lenslet/model.h"

#include "base/boundary.h"

namespace lenslet {

std::string PortInfo::str() const {
  return with_errors([&] {
    std::string text = "[";
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (i > 0) text += ',';
      if (dims[i] >= 0)
        text += std::to_string(dims[i]);
      else
        text += i < dim_names.size() && !dim_names[i].empty() ? dim_names[i] : "?";
    }
    return text + "]";
  });
}

}  // namespace lenslet
