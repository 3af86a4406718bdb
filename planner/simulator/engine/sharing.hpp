// How running transfers share the network; the operations and their order are those of sharing.py.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "events.hpp"

namespace planner {

// One direction of one server in virtual time: a start or an end costs O(log workers).
class EqualShares {
 public:
  EqualShares(const Inputs& in, int resource)
      : resource_(resource),
        capacity_(in.capacity[resource == UPLINK]),
        flow_limit_(in.flow_limit[resource == UPLINK]),
        flows_(in.workers) {
    targets_.reserve(in.workers);
  }

  void start(double now, int worker, int, double size, double weight) {
    if (!targets_.empty()) virtual_ += (now - since_) * rate();
    since_ = now;
    weights_ += weight;
    Target target{virtual_ + (weight == 1 ? size : size / weight), worker};
    flows_[worker] = {size, weight, target.at};
    targets_.push(target);
    stale_ = true;
  }
  void finish(double now, int worker, int) {
    targets_.settle();
    virtual_ = targets_.top().at;
    targets_.take();
    since_ = now;
    weights_ -= flows_[worker].weight;
    if (targets_.empty()) virtual_ = weights_ = 0;
    stale_ = true;
  }
  Event next() {
    if (stale_) {
      stale_ = false;
      targets_.settle();
      next_ = Event{};
      if (!targets_.empty()) {
        auto [target, worker] = targets_.top();
        double end = since_ + (target - virtual_) / rate();
        next_ = {std::max(end, since_), event_key(resource_, worker, 0)};
      }
    }
    return next_;
  }
  double delivered(double now, int worker, int) const {
    const Flow& flow = flows_[worker];
    return flow.size - (flow.target - (virtual_ + (now - since_) * rate())) * flow.weight;
  }

 private:
  struct Flow {
    double size, weight, target;
  };
  struct Target {
    double at;  // the virtual time at which the flow ends
    int worker;
    bool operator<(const Target& other) const {
      return at < other.at || (at == other.at && worker < other.worker);
    }
  };
  // Divides only when the weights have changed since it last did.
  double rate() const {
    if (weights_ != rate_of_) {
      rate_ = std::min(capacity_ / weights_, flow_limit_);
      rate_of_ = weights_;
    }
    return rate_;
  }

  int resource_;
  double capacity_, flow_limit_;
  double weights_ = 0, virtual_ = 0, since_ = 0;
  mutable double rate_ = 0, rate_of_ = 0;
  Heap<Target> targets_;
  std::vector<Flow> flows_;
  Event next_;
  bool stale_ = false;
};

// Max-min fair rates over NICs, by progressive filling, for the flows of one direction (or of both, if some
// node holds a worker and a server). Rates are computed anew only when the set of flows changed: a chunk that
// follows another on its lane inherits the rate.
class MaxMinShares {
 public:
  explicit MaxMinShares(const Inputs& in)
      : in_(in),
        flows_(size_t(2) * in.workers * in.servers),
        left_(in.nic_capacity.size()),
        weight_left_(in.nic_capacity.size()),
        share_(in.nic_capacity.size()),
        full_share_(in.nic_capacity.size()),
        flows_left_(in.nic_capacity.size()),
        flows_of_(in.nic_capacity.size()),
        even_(in.fairness_sigma == 0 && in.flow_bytes_per_s == infinity) {
    for (int direction = 0; direction < 2; ++direction)
      for (int w = 0; w < in.workers; ++w)
        for (int s = 0; s < in.servers; ++s) {
          Flow& flow = flows_[index(direction, w, s)];
          int there = in.server_nodes[s], here = in.worker_nodes[w];
          flow.link[0] = direction == 0 ? 2 * there : 2 * here;
          flow.link[1] = direction == 0 ? 2 * here + 1 : 2 * there + 1;
          flow.key = event_key(direction == 0 ? DOWNLINK : UPLINK, w, s);
        }
  }

  void start(double now, int direction, int worker, int server, double size, double weight) {
    int f = index(direction, worker, server);
    Flow& flow = flows_[f];
    changed_ = changed_ || !flow.shared || flow.shared_weight != weight;
    flow.size = flow.remaining = size;
    flow.since = now;
    flow.rate = 0;
    flow.weight = weight;
    flow.running = true;
    touched_.push_back(f);
  }
  void finish(double, int direction, int worker, int server) {
    int f = index(direction, worker, server);
    flows_[f].running = false;
    touched_.push_back(f);
  }
  void commit(double now) {
    if (touched_.empty()) return;
    for (int f : touched_) changed_ = changed_ || flows_[f].running != flows_[f].shared;
    if (!changed_) {
      for (int f : touched_) reschedule(flows_[f], now);
      next_ = Event{};
      for (int f : active_) next_ = std::min(next_, Event(flows_[f].end, flows_[f].key));
    } else {
      for (int f : touched_) update_membership(f);
      next_ = Event{};
      if (even_) {
        fill_even(now);
      } else {
        fill();
        for (int f : active_) settle(flows_[f], now);
      }
      changed_ = false;
    }
    touched_.clear();
  }
  Event next() const { return next_; }
  double delivered(double now, int direction, int worker, int server) const {
    const Flow& flow = flows_[index(direction, worker, server)];
    return flow.size - (flow.remaining - flow.rate * (now - flow.since));
  }

 private:
  struct Flow {
    double size = 0, weight = 1, remaining = 0, since = 0, rate = 0, end = infinity, fair_rate = 0;
    double shared_weight = 0;
    uint64_t key = 0;
    int64_t round = 0;  // of the filling that gave it its rate
    int link[2] = {0, 0};   // egress, ingress
    int place[3] = {0, 0, 0};  // in the lists of its links and among all flows
    bool running = false, shared = false;  // shared: counted when rates were last computed
  };

  int index(int direction, int worker, int server) const {
    return (direction * in_.workers + worker) * in_.servers + server;
  }
  static void reschedule(Flow& flow, double now) {
    if (flow.fair_rate == flow.rate) return;
    flow.remaining = std::max(0.0, flow.remaining - flow.rate * (now - flow.since));
    flow.since = now;
    flow.rate = flow.fair_rate;
    flow.end = now + flow.remaining / flow.rate;
  }
  // Give a flow its fair rate and see whether it ends first.
  void settle(Flow& flow, double now) {
    reschedule(flow, now);
    next_ = std::min(next_, Event(flow.end, flow.key));
  }
  void update_membership(int f) {
    Flow& flow = flows_[f];
    flow.shared_weight = flow.weight;
    if (flow.running == flow.shared) return;
    flow.shared = flow.running;
    if (even_) {
      put(active_, f, 2);
      for (int side = 0; side < 2; ++side) update_link(flow, f, side);
      return;
    }
    auto place = std::lower_bound(active_.begin(), active_.end(), f);
    if (flow.running)
      active_.insert(place, f);
    else
      active_.erase(place);
  }
  // Append a running flow to an unordered list, or take it out; it knows its place in each of its lists.
  void put(std::vector<int>& list, int f, int which) {
    if (flows_[f].running) {
      flows_[f].place[which] = static_cast<int>(list.size());
      list.push_back(f);
      return;
    }
    int moved = list.back(), place = flows_[f].place[which];
    list[place] = moved;
    flows_[moved].place[which] = place;
    list.pop_back();
  }
  void update_link(const Flow& flow, int f, int side) {
    int link = flow.link[side];
    auto& on_link = flows_of_[link];
    put(on_link, f, side);
    if (on_link.empty())
      used_links_.erase(std::find(used_links_.begin(), used_links_.end(), link));
    else if (on_link.size() == 1 && flow.running)
      used_links_.push_back(link);
    if (!on_link.empty()) full_share_[link] = in_.nic_capacity[link] / static_cast<double>(on_link.size());
  }
  // As `fill`, for flows of weight 1 without a limit, where the order of flows makes no difference: visits only
  // the flows of the link that is full, divides only for links that lose some, and settles flows on the way.
  void fill_even(double now) {
    links_ = used_links_;
    for (int link : links_) {
      left_[link] = in_.nic_capacity[link];
      flows_left_[link] = static_cast<int>(flows_of_[link].size());
      share_[link] = full_share_[link];
    }
    ++round_;
    size_t links = links_.size();
    for (size_t rest = active_.size(); rest > 0;) {
      double level = infinity;
      int full = -1;
      size_t kept = 0;
      for (size_t i = 0; i < links; ++i) {
        int link = links_[i];
        links_[kept] = link;
        kept += flows_left_[link] > 0;
        double share = flows_left_[link] > 0 ? share_[link] : infinity;
        if (share < level || (share == level && link < full)) level = share, full = link;
      }
      links = kept;
      for (int f : flows_of_[full]) {
        Flow& flow = flows_[f];
        if (flow.round == round_) continue;
        flow.round = round_;
        flow.fair_rate = level;
        settle(flow, now);
        --rest;
        int other = flow.link[0] == full ? flow.link[1] : flow.link[0];
        left_[other] -= level;
        if (--flows_left_[other] > 0)
          share_[other] = std::max(0.0, left_[other]) / static_cast<double>(flows_left_[other]);
      }
      flows_left_[full] = 0;
    }
  }
  void fill() {
    links_.clear();
    for (int f : active_)
      for (int link : flows_[f].link) {
        if (flows_left_[link]++ == 0) {
          links_.push_back(link);
          left_[link] = in_.nic_capacity[link];
          weight_left_[link] = 0;
        }
        weight_left_[link] += flows_[f].weight;
      }
    waiting_ = active_;
    while (!waiting_.empty()) {
      double level = infinity;
      int full = -1;
      size_t kept = 0;
      for (int link : links_) {
        if (flows_left_[link] == 0) continue;
        links_[kept++] = link;
        double share = std::max(0.0, left_[link]) / weight_left_[link];
        if (share < level || (share == level && link < full)) level = share, full = link;
      }
      links_.resize(kept);
      bool limited = in_.flow_bytes_per_s < infinity &&
                     std::any_of(waiting_.begin(), waiting_.end(), [&](int f) {
                       return in_.flow_bytes_per_s / flows_[f].weight <= level;
                     });
      kept = 0;
      for (int f : waiting_) {
        Flow& flow = flows_[f];
        bool stops = limited ? in_.flow_bytes_per_s / flow.weight <= level
                             : flow.link[0] == full || flow.link[1] == full;
        if (!stops) {
          waiting_[kept++] = f;
          continue;
        }
        flow.fair_rate = limited ? in_.flow_bytes_per_s : level * flow.weight;
        for (int link : flow.link) {
          left_[link] -= flow.fair_rate;
          weight_left_[link] -= flow.weight;
          --flows_left_[link];
        }
      }
      waiting_.resize(kept);
    }
  }

  const Inputs& in_;
  std::vector<Flow> flows_;
  std::vector<double> left_, weight_left_, share_, full_share_;
  std::vector<int> flows_left_, links_, used_links_, active_, waiting_, touched_;
  std::vector<std::vector<int>> flows_of_;
  bool even_;
  int64_t round_ = 0;
  bool changed_ = false;
  Event next_;
};

// The two directions, by one interface.
class EqualLinks {
 public:
  explicit EqualLinks(const Inputs& in) : direction_{EqualShares(in, DOWNLINK), EqualShares(in, UPLINK)} {}
  void start(double now, int d, int w, int s, double size, double weight) {
    direction_[d].start(now, w, s, size, weight);
    stale_ = true;
  }
  void finish(double now, int d, int w, int s) {
    direction_[d].finish(now, w, s);
    stale_ = true;
  }
  void commit(double) {
    if (!stale_) return;
    stale_ = false;
    next_ = std::min(direction_[0].next(), direction_[1].next());
  }
  Event next() const { return next_; }
  double delivered(double now, int d, int w, int s) const { return direction_[d].delivered(now, w, s); }

 private:
  EqualShares direction_[2];
  bool stale_ = false;
  Event next_;
};

class MaxMinLinks {
 public:
  explicit MaxMinLinks(const Inputs& in) {
    for (int node : in.server_nodes)
      mixed_ = mixed_ || std::ranges::find(in.worker_nodes, node) != in.worker_nodes.end();
    direction_.emplace_back(in);
    if (!mixed_) direction_.emplace_back(in);
  }
  void start(double now, int d, int w, int s, double size, double weight) {
    of(d).start(now, d, w, s, size, weight);
  }
  void finish(double now, int d, int w, int s) { of(d).finish(now, d, w, s); }
  void commit(double now) {
    for (auto& shares : direction_) shares.commit(now);
  }
  Event next() {
    Event first;
    for (auto& shares : direction_) first = std::min(first, shares.next());
    return first;
  }
  double delivered(double now, int d, int w, int s) { return of(d).delivered(now, d, w, s); }

 private:
  MaxMinShares& of(int d) { return direction_[mixed_ ? 0 : d]; }
  std::vector<MaxMinShares> direction_;
  bool mixed_ = false;
};

}  // namespace planner
