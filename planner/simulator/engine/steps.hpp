// The step each worker is in: which measured step it replays, which ops still wait, and the record of ends.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "generator.hpp"
#include "inputs.hpp"
#include "schedulers.hpp"

namespace planner {

inline std::vector<LinkTraits> link_traits(const Inputs& in) {
  std::vector<LinkTraits> traits(size_t(2) * in.channels);
  int32_t blocks = 0;
  if (in.policy.kind == Kind::blocks)
    for (int32_t block : in.policy.block) blocks = std::max(blocks, block + 1);
  std::shared_ptr<const std::vector<int32_t>> places;
  if (in.policy.kind != Kind::fifo && in.policy.kind != Kind::multiplexed)
    places = std::make_shared<std::vector<int32_t>>(rank_places(in));
  for (size_t i = 0; i < traits.size(); ++i) {
    traits[i].in = &in;
    traits[i].overhead_s = in.policy.overhead_s[i >= size_t(in.channels)];
    traits[i].blocks.resize(blocks);
    traits[i].rank_places = places;
  }
  for (int op = 0; op < in.ops; ++op) {
    if (in.resource[op] != DOWNLINK && in.resource[op] != UPLINK) continue;
    LinkTraits& link = traits[(in.resource[op] == UPLINK) * in.channels + in.server[op]];
    ++link.transfers;
    if (blocks == 0 || in.policy.block[op] < 0) continue;
    auto& members = link.blocks[in.policy.block[op]];
    members.resize(in.policy.members[op]);
    members[in.policy.place[op]] = op;
  }
  return traits;
}

// Stable: ops that tie stay in the order of their names.
inline void sort_by_order(std::span<int32_t> ops, const int32_t* order) {
  auto before = [order](int32_t a, int32_t b) { return order[a] < order[b]; };
  if (ops.size() > 24) {
    std::stable_sort(ops.begin(), ops.end(), before);
    return;
  }
  for (size_t i = 1; i < ops.size(); ++i)
    for (size_t j = i; j > 0 && before(ops[j], ops[j - 1]); --j) std::swap(ops[j], ops[j - 1]);
}

class Steps {
 public:
  // `counted`: the ops of a step whose ends are reported by `op_ended`; none: `release` is not used either.
  // `opening`: if there is one, the transfers that wait for it, all downloads, take the place of roots.
  Steps(const Inputs& in, int counted, int32_t opening = -1)
      : in_(in),
        counted_(counted),
        waiting_(counted == 0 ? 0 : size_t(in.workers) * in.ops),
        shuffled_(in.has_order() ? 0 : in.workers * in.transfers.size()),
        place_(in.has_order() ? 0 : size_t(in.workers) * in.ops, 0),
        is_root_(in.ops, 0),
        roots_of_row_(in.has_order() ? in.rows : 0),
        weights_(size_t(in.workers) * 2 * in.channels, 1.0),
        least_left_(in.workers) {
    dependencies_.assign(in.waiting.begin(), in.waiting.end());
    for (int32_t op : opening < 0 ? in.roots : in.dependents(opening)) {
      bool transfer = in.resource[op] == DOWNLINK || in.resource[op] == UPLINK;
      if (opening >= 0 && !transfer) continue;
      is_root_[op] = 1;
      if (!transfer || in.has_order()) fixed_roots_.push_back(op);
    }
    workers_.reserve(in.workers);
    for (int w = 0; w < in.workers; ++w) {
      workers_.push_back({Generator(in.seed, in.run, static_cast<uint64_t>(w))});
      workers_.back().speed = in.speeds[w];
      if (!in.has_order())
        std::copy(in.transfers.begin(), in.transfers.end(), shuffled_.begin() + w * in.transfers.size());
    }
  }

  // StartRandomStep: sample a step with replacement; what is drawn and in which order, run.py says.
  void begin(int w, double now) {
    Worker& worker = workers_[w];
    ++worker.step;
    worker.row = static_cast<int32_t>(worker.generator.below(static_cast<uint32_t>(in_.rows)));
    if (!in_.has_order()) {
      auto shuffled = transfers(w);
      worker.generator.shuffle(shuffled);
      int32_t* place = &place_[size_t(w) * in_.ops];
      for (size_t i = 0; i < shuffled.size(); ++i) place[shuffled[i]] = static_cast<int32_t>(i);
      worker.order = place;
    } else {
      worker.order = &in_.order[size_t(worker.row) * in_.ops];
    }
    if (in_.fairness_sigma > 0) draw_weights(w);
    if (counted_ > 0)
      std::memcpy(&waiting_[size_t(w) * in_.ops], dependencies_.data(), dependencies_.size() * sizeof(uint16_t));
    worker.durations = &in_.durations[size_t(worker.row) * in_.ops];
    worker.unfinished = counted_;
    worker.starts_s.push_back(now);
    worker.steps_of_others = completed_ - ended(w);
  }

  // Ops without dependencies, in the order of this step.
  std::span<const int32_t> roots(int w) {
    Worker& worker = workers_[w];
    if (in_.has_order()) {
      auto& roots = roots_of_row_[worker.row];
      if (roots.empty()) {
        roots = fixed_roots_;
        sort_by_order(roots, worker.order);
      }
      return roots;
    }
    auto shuffled = transfers(w);
    scratch_.resize(fixed_roots_.size() + shuffled.size());
    size_t n = static_cast<size_t>(std::ranges::copy(fixed_roots_, scratch_.begin()).out - scratch_.begin());
    for (int32_t op : shuffled) {  // half of the transfers are roots, in a random order: better no branch
      scratch_[n] = op;
      n += is_root_[op];
    }
    return {scratch_.data(), n};
  }

  // One dependency of `op` has ended; is it the last?
  bool release(int w, int32_t op) { return --waiting_[size_t(w) * in_.ops + op] == 0; }

  // The opposite of `release`: true if that dependency had been the last.
  bool hold(int w, int32_t op) { return waiting_[size_t(w) * in_.ops + op]++ == 0; }

  // `release` for several dependents; those that are ready, in the order of this step.
  std::span<const int32_t> release_all(int w, std::span<const int32_t> dependents) {
    uint16_t* waiting = &waiting_[size_t(w) * in_.ops];
    scratch_.clear();
    for (int32_t op : dependents)
      if (--waiting[op] == 0) scratch_.push_back(op);
    if (scratch_.size() > 1) sort_by_order(scratch_, workers_[w].order);
    return scratch_;
  }
  // Do worker ops that become ready together go by name? Then they need no sorting.
  bool compute_by_name() const { return !in_.has_order(); }

  double duration(int w, int32_t op, bool on_worker) const {
    const Worker& worker = workers_[w];
    double seconds = worker.durations[op];
    return on_worker && worker.speed != 1 ? seconds / worker.speed : seconds;
  }

  const double* durations(int w) const { return workers_[w].durations; }
  const int32_t* order(int w) const { return workers_[w].order; }
  int32_t row(int w) const { return workers_[w].row; }
  const std::vector<uint16_t>& dependencies() const { return dependencies_; }
  double speed(int w) const { return workers_[w].speed; }

  bool op_ended(int w) { return --workers_[w].unfinished == 0; }
  int unfinished(int w) const { return workers_[w].unfinished; }

  void end(int w, double now) {
    Worker& worker = workers_[w];
    int64_t others = completed_ - ended(w);
    worker.staleness.push_back(in_.lockstep ? 0 : static_cast<int32_t>(others - worker.steps_of_others));
    worker.ends_s.push_back(now);
    ++completed_;
    most_ = std::max(most_, ended(w));
    if (ended(w) - 1 == least_ && --least_left_ == 0) {
      ++least_;
      for (int v = 0; v < in_.workers; ++v) least_left_ += ended(v) == least_;
    }
  }

  int64_t now(int w) const { return workers_[w].step; }
  int64_t ended(int w) const { return static_cast<int64_t>(workers_[w].ends_s.size()); }
  bool all_warm() const { return least_ >= in_.warmup_steps; }
  bool enough() const { return (in_.until_all ? least_ : most_) >= in_.steps; }
  double weight(int w, int direction, int server) const { return weights_[flow(w, direction, server)]; }

  void move_into(Result& result) {
    for (Worker& worker : workers_) {
      worker.starts_s.resize(worker.ends_s.size());
      result.starts_s.push_back(std::move(worker.starts_s));
      result.ends_s.push_back(std::move(worker.ends_s));
      result.staleness.push_back(std::move(worker.staleness));
    }
  }

 private:
  struct Worker {
    Generator generator;
    int64_t step = -1;
    int32_t row = 0;
    int32_t unfinished = 0;
    double speed = 1;
    const int32_t* order = nullptr;
    const double* durations = nullptr;
    int64_t steps_of_others = 0;  // steps of other workers that had ended when this step began
    std::vector<double> starts_s{}, ends_s{};
    std::vector<int32_t> staleness{};
  };

  size_t flow(int w, int direction, int server) const {
    return (size_t(w) * 2 + direction) * in_.channels + server;
  }
  // Uneven only where flows of several senders meet: uploads, and downloads if there are several channels.
  void draw_weights(int w) {
    for (int direction = in_.channels > 1 ? 0 : 1; direction < 2; ++direction)
      for (int s = 0; s < in_.channels; ++s)
        weights_[flow(w, direction, s)] = workers_[w].generator.weight(in_.fairness_sigma);
  }
  std::span<int32_t> transfers(int w) {
    return {shuffled_.data() + w * in_.transfers.size(), in_.transfers.size()};
  }
  const Inputs& in_;
  int counted_;
  std::vector<Worker> workers_;
  std::vector<uint16_t> dependencies_, waiting_;
  std::vector<int32_t> shuffled_, place_;
  std::vector<uint8_t> is_root_;
  std::vector<std::vector<int32_t>> roots_of_row_;
  std::vector<int32_t> fixed_roots_, scratch_;
  std::vector<double> weights_;  // of each worker's flows in its step: direction, server
  int64_t completed_ = 0, most_ = 0, least_ = 0;
  int least_left_;  // workers that have ended just `least_` steps
};

}  // namespace planner
