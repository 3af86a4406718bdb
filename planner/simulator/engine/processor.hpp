// What a worker computes in a step, its host parses or a server updates for it: ops that run one after the other, first
// come first served, once the arrivals that the ops wait for are known.
//
// An op that finds everything in and nothing else in the queue is a "waist", as the loss mostly is: all other ops
// come before the waist or after it, so that the ops after a waist are always the same, in the same order, and only
// the times of these ops have to be added up.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "events.hpp"
#include "feeders.hpp"
#include "steps.hpp"
#include "training_step.hpp"

namespace planner {

class Processor {
 public:
  // An op of another lane, and the place in the order of the op whose end releases it.
  struct Unlocked {
    int32_t place, op;
  };

  // The closing op is left out, whichever lane it runs on.
  Processor(const Inputs& in, const TrainingStep& step, int resource, int server)
      : in_(in),
        opening_(step.opening),
        speed_counts_(resource == WORKER),
        feeds_(resource == HOST) {
    auto on = [&](int32_t op, int r) { return in.resource[op] == r && (r <= WORKER || in.server[op] == server); };
    auto on_host = [&](int32_t op) { return in.resource[op] == HOST; };
    auto mine = [&](int32_t op) { return on(op, resource) && op != step.closing; };
    if (feeds_ && std::ranges::find(in.resource, HOST) == in.resource.end()) return;  // a host without ops never runs
    waiting_.resize(in.ops);
    links_.resize(in.ops);
    feeders_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return !mine(op) && mine(dependent); });
    inner_ = Edges::select(in, [&](int32_t op, int32_t dependent) { return mine(op) && mine(dependent); });
    outer_ = Edges::select(in, [&](int32_t op, int32_t dependent) {
      return mine(op) && !mine(dependent) && dependent != step.closing && !feeds_;
    });
    for (int32_t op = 0; op < in.ops; ++op) {
      arrivals_ += on(op, resource == PS ? UPLINK : DOWNLINK);
      arrivals_ += resource == WORKER && on_host(op);
      auto inner = inner_.of(op);
      bool unlocks = !outer_.of(op).empty();
      links_[op] = {inner.size() == 1 && in.waiting[inner[0]] == 1 ? inner[0] : -1, unlocks || feeds_};
      if (!mine(op)) continue;
      ++ops_;
      counts_ = counts_ || in.waiting[op] > 1 || unlocks;
    }
    queue_.resize(ops_);
    ends_s_.resize(ops_);
    waists_.resize(in.has_order() ? in.rows : 1);
  }

  int ops() const { return ops_; }
  // The ends of ops that have ended, in order.
  std::span<const double> ends_s() const { return {ends_s_.data(), ended_}; }
  // For a host: the ends of the host's ops as arrivals that computation waits for.
  std::span<const Arrival> ended() const { return ended_ops_; }
  // The ops of other lanes that these ends have released, in order.
  std::span<const Unlocked> unlocked() const { return unlocked_; }
  double busy_s(double begin_s, double now) const {
    return ended_ == 0 ? 0.0 : std::min(now, ends_s_[ended_ - 1]) - begin_s - idle_s_;
  }

  // From the beginning of a step: `roots` wait for nothing. `key`: of the events of this processor. `begun_rank`: the
  // rank, in the instant in which downloads begin, of an event that their beginning calls forth (see Arrival).
  void run(const Steps& steps, int worker, double begin_s, uint64_t key, uint64_t begun_rank,
           std::span<const int32_t> roots, std::span<const Arrival> arrivals) {
    if (counts_) std::copy(steps.dependencies().begin(), steps.dependencies().end(), waiting_.begin());
    order_ = in_.has_order() ? steps.order(worker) : nullptr;
    Waist& waist = waists_[in_.has_order() ? steps.row(worker) : 0];
    const double *durations = steps.durations(worker), speed = speed_counts_ ? steps.speed(worker) : 1;
    const Arrival *arrival = arrivals.data(), *none_left = arrival + arrivals.size();
    bool complete = arrivals.size() == arrivals_ && !feeds_;
    ended_ops_.clear();
    int32_t *head = queue_.data(), *tail = std::copy(roots.begin(), roots.end(), head), *narrow = nullptr;
    double now = begin_s, *end_s = ends_s_.data();
    uint64_t rank = opening_ < 0 ? std::max(key, begun_rank) : key;  // of the next end, if it takes no time
    idle_s_ = 0;
    unlocked_.clear();
    for (;;) {
      if (head == tail) {
        if (arrival == none_left) break;
        now = std::max(now, arrival->time_s);
        rank = std::max(key, arrival->rank);
        tail = release(feeders_.of((arrival++)->op), tail);
        if (head != tail) idle_s_ += now - (head == queue_.data() ? begin_s : end_s[-1]);
        continue;
      }
      int32_t op = *head;
      if (complete && arrival == none_left && head + 1 == tail) {
        if (op == waist.op) return follow(waist, durations, speed, now, end_s);
        if (narrow == nullptr) narrow = head;
      }
      double before = now;
      now += speed == 1 ? durations[op] : durations[op] / speed;
      if (now != before) rank = key;
      for (; arrival != none_left && arrival->time_s <= now; ++arrival) {
        if (arrival->time_s == now && arrival->rank > rank) break;
        tail = release(feeders_.of(arrival->op), tail);
      }
      Link link = links_[op];
      if (link.shows) show({now, rank, op}, static_cast<int32_t>(head - queue_.data()));
      *end_s++ = now;
      ++head;
      if (op == opening_) rank = std::max(key, begun_rank);
      if (link.next >= 0)
        *tail++ = link.next;
      else
        tail = release(inner_.of(op), tail);
    }
    ended_ = static_cast<size_t>(head - queue_.data());
    if (narrow != nullptr) remember(waist, static_cast<int32_t>(narrow - queue_.data()));
  }

 private:
  // What the end of an op does: `next` if the only op that it unlocks here waits for nothing else; `shows`: other lanes
  // look at the end.
  struct Link {
    int32_t next;
    bool shows;
  };
  struct Waist {
    int32_t op = -1;
    std::vector<int32_t> order{};  // of all ops from the waist on
    std::vector<Unlocked> unlocked{};
  };
  int32_t* release(std::span<const int32_t> dependents, int32_t* tail) {
    int32_t* first = tail;
    for (int32_t op : dependents)
      if (!counts_ || --waiting_[op] == 0) *tail++ = op;
    if (order_ != nullptr && tail - first > 1) sort_by_order({first, tail}, order_);
    return tail;
  }
  void show(const Arrival& end, int32_t place) {
    if (feeds_) ended_ops_.push_back(end);
    for (int32_t waits : outer_.of(end.op))
      if (--waiting_[waits] == 0) unlocked_.push_back({place, waits});
  }
  void follow(const Waist& waist, const double* durations, double speed, double now, double* end_s) {
    for (int32_t op : waist.order) *end_s++ = now += speed == 1 ? durations[op] : durations[op] / speed;
    unlocked_.insert(unlocked_.end(), waist.unlocked.begin(), waist.unlocked.end());
    ended_ = queue_.size();
  }
  // An op may be a waist in some steps only: the last one found is kept.
  void remember(Waist& waist, int32_t place) {
    waist.op = queue_[place];
    waist.order.assign(queue_.begin() + place, queue_.end());
    auto after = std::ranges::find_if(unlocked_, [place](Unlocked unlocked) { return unlocked.place >= place; });
    waist.unlocked.assign(after, unlocked_.end());
  }

  const Inputs& in_;
  int32_t opening_;
  bool speed_counts_;
  bool feeds_;  // computation waits for ops of this processor
  std::vector<uint16_t> waiting_;
  std::vector<Link> links_;
  Edges feeders_, inner_, outer_;
  int32_t ops_ = 0;
  size_t arrivals_ = 0;  // arrivals in a step that some op waits for
  bool counts_ = false;   // some op waits for more than one arrival
  std::vector<Waist> waists_;  // if profiles have an order, for each of their steps
  size_t ended_ = 0;
  double idle_s_ = 0;
  const int32_t* order_ = nullptr;
  std::vector<int32_t> queue_;
  std::vector<double> ends_s_;
  std::vector<Unlocked> unlocked_;
  std::vector<Arrival> ended_ops_;
};

}  // namespace planner
