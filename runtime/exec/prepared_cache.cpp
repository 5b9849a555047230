#include "runtime/exec/prepared_cache.h"

#include <algorithm>
#include <cstring>

namespace lenslet {

namespace {

bool same_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.data() == y.data() || (x.bytes() == y.bytes() && std::memcmp(x.data(), y.data(), x.bytes()) == 0);
  });
}

}  // namespace

PreparedWeights PreparedCache::get(const PreparedKey& key, const std::function<PreparedWeights()>& make) {
  const std::lock_guard lock(mutex_);
  const auto [first, end] = entries_.equal_range(key.text);
  auto found = std::find_if(first, end, [&](const auto& e) { return same_bytes(e.second.constants, key.constants); });
  const bool is_new = found == end;
  if (is_new) {
    Entry made{make(), key.constants};
    found = entries_.emplace(key.text, std::move(made));
  }
  found->second.last_asked = ++asked_;
  PreparedWeights weights = found->second.weights;  // held from here on
  if (is_new) trim_locked();
  return weights;
}

void PreparedCache::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void PreparedCache::trim_locked() {
  const auto is_unused = [](const auto& entry) { return entry.second.weights.data.use_count() == 1; };
  std::size_t unused = 0;
  for (const auto& entry : entries_)
    if (is_unused(entry)) unused += entry.second.weights.bytes;
  while (unused > most_unused_bytes_) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
      if (is_unused(*entry) && (oldest == entries_.end() || entry->second.last_asked < oldest->second.last_asked))
        oldest = entry;
    unused -= oldest->second.weights.bytes;
    entries_.erase(oldest);
  }
}

std::size_t PreparedCache::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& entry : entries_) sum += entry.second.weights.bytes;
  return sum;
}

}  // namespace lenslet
