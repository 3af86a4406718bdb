// SplitMix64, as run.py documents it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>

namespace planner {

inline constexpr uint64_t golden = 0x9E3779B97F4A7C15u;

inline uint64_t mix(uint64_t value) {
  value += golden;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

class Generator {
 public:
  Generator(uint64_t seed, uint64_t run, uint64_t worker) : state_(mix(mix(mix(seed) + run) + worker)) {}

  uint64_t next() {
    uint64_t value = mix(state_);
    state_ += golden;
    return value;
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }
  void shuffle(std::span<int32_t> items) {
    for (size_t i = items.size(); i-- > 1;) std::swap(items[i], items[below(static_cast<uint32_t>(i + 1))]);
  }
  double normal() {
    double u = static_cast<double>((next() >> 11) + 1) * 0x1p-53;
    double v = static_cast<double>(next() >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }
  double weight(double sigma) {
    double scaled = std::floor(std::exp(sigma * normal()) * 0x1p20 + 0.5);
    return std::min(std::max(scaled, 1.0), 0x1p40) * 0x1p-20;
  }

 private:
  uint64_t state_;
};

}  // namespace planner
