// Max-min fair rates over NICs, for the flows of one direction (or of both, if some node holds a worker and a
// server); the operations and their order are those of sharing.py's progressive filling.
//
// Flows lie in rows, one for each server's NIC, in the order of workers. Where many workers meet at few servers
// the servers' NICs fill first, each at the level capacity / flows, whatever the others do: such a row is
// "plain", and a change touches the clock of that row alone. Filling is worked out only for rows that may be
// limited by a worker's NIC too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "clocks.hpp"

namespace planner {

class MaxMinShares {
 public:
  // `first`, `last`: the directions, 0 down and 1 up, whose flows it serves.
  MaxMinShares(const Inputs& in, const Now& now, int first, int last, bool remembers)
      : in_(in),
        now_(now),
        first_(first),
        links_(in.nic_capacity.size()),
        rows_(size_t(last - first + 1) * in.servers),
        flows_(rows_.size() * in.workers),
        own_(in.flow_bytes_per_s < infinity ? flows_.size() : 0),
        nexts_(links_.size() + own_.size()),
        even_(in.fairness_sigma == 0) {
    std::vector<int> servers_on(links_.size(), 0), workers_on(links_.size(), 0);
    for (size_t r = 0; r < rows_.size(); ++r) {
      int direction = first + static_cast<int>(r) / in.servers, server = static_cast<int>(r) % in.servers;
      Row& row = rows_[r];
      row.link = 2 * in.server_nodes[server] + direction;
      row.flows.reserve(in.workers);
      by_rows_ = by_rows_ && servers_on[row.link]++ == 0;
      for (int w = 0; w < in.workers; ++w) {
        MaxMinFlow& flow = flows_[r * in.workers + w];
        flow.key = event_key(direction == 0 ? DOWNLINK : UPLINK, w, server);
        flow.row = static_cast<int>(r);
        flow.worker_link = 2 * in.worker_nodes[w] + 1 - direction;
        ++workers_on[flow.worker_link];
        if (server == 0) links_[flow.worker_link].workers.push_back(w);
      }
    }
    by_rows_ = by_rows_ && first == last;
    for (size_t l = 0; l < links_.size(); ++l) {
      Link& link = links_[l];
      link.capacity = in.nic_capacity[l];
      if (link.workers.empty()) continue;
      worker_links_.push_back(static_cast<int>(l));
      least_worker_share_ = std::min(least_worker_share_, link.capacity / workers_on[l]);
    }
    int number = 0;
    for_all_clocks([&](Clock& clock) { clock.number = number++, clock.remembers = remembers; });
  }

  Flow& flow(int direction, int worker, int server) {
    return flows_[size_t((direction - first_) * in_.servers + server) * in_.workers + worker];
  }
  void start(Flow& started, double size, double weight) {
    auto& flow = static_cast<MaxMinFlow&>(started);
    if (&flow == ended_ && flow.weight == weight) {
      ended_ = nullptr;
      flow.add(size);
      return extend(flow);
    }
    leave();
    flow.weight = weight;
    flow.size = flow.left = size;
    if (weight > heaviest_) heaviest_ = weight, heavier_ = true;
    Row& row = rows_[flow.row];
    row.flows.insert(std::lower_bound(row.flows.begin(), row.flows.end(), &flow), &flow);
    comes_or_goes(flow);
  }
  void finish(Flow& flow) { ended_ = static_cast<MaxMinFlow*>(&flow); }
  void extend(Flow& flow) {
    flow.clock->moved(flow);
    look_at(*flow.clock);
  }
  void commit() {
    leave();
    if (changed_) {
      if (!by_rows_ || !(share_plain_rows() || share_rows())) share_all();
      changed_ = false;
    }
    if (looked_at_.empty()) return;
    for (Clock* clock : looked_at_) update_next(*clock);
    looked_at_.clear();
    if (next_is_stale_) find_next();
  }
  Event next() const { return next_; }
  template <class Do>
  void for_all_clocks(Do action) {
    for (Link& link : links_) action(link.clock);
    for (Clock& clock : own_) action(clock);
  }
  std::function<void(Flow&)> before_move;

 private:
  struct MaxMinFlow : Flow {
    int row = 0, worker_link = 0;
    bool waiting = false;      // for its rate, while rates are computed
    Clock* limit = nullptr;    // as last computed
    double level = 0, left = 0;
  };
  struct Link {
    Clock clock;
    double capacity = 0, weight = 0, share = 0;  // of all flows, and the capacity for a unit of it
    double left = 0, weight_left = 0, share_left = 0;  // of flows that have no rate yet
    int flows = 0, flows_left = 0;
    bool stale = true;
    std::vector<int> workers;  // that have this NIC, if it is one of workers
    void weigh(int n, double sum) {
      flows = n;
      weight = sum;
      share = n > 0 ? capacity / weight : infinity;
      stale = false;
    }
    void fill() {
      left = capacity;
      weight_left = weight;
      share_left = share;
      flows_left = flows;
    }
    void take(double rate, double weight_of_flow) {
      left -= rate;
      weight_left -= weight_of_flow;
      --flows_left;
      share_left = -1;
    }
    double share_now() {
      if (share_left < 0) share_left = std::max(0.0, left) / weight_left;
      return share_left;
    }
  };
  struct Row {
    int link = 0;
    bool dirty = false;   // flows came or went
    bool plain = true;    // all flows go by the clock of its link
    bool safe = true;     // whatever the others do
    std::vector<MaxMinFlow*> flows;  // running, in the order of workers
  };
  // A row is plain only if no worker's NIC comes near its level: rounding must not decide.
  static constexpr double clearly = 1 + 1e-9;

  void leave() {
    if (ended_ == nullptr) return;
    MaxMinFlow& flow = *ended_;
    ended_ = nullptr;
    Clock& clock = *flow.clock;
    clock.set(now_, flow.target);
    clock.remove(flow);
    look_at(clock);
    Row& row = rows_[flow.row];
    row.flows.erase(std::lower_bound(row.flows.begin(), row.flows.end(), &flow));
    comes_or_goes(flow);
  }
  void comes_or_goes(MaxMinFlow& flow) {
    Row& row = rows_[flow.row];
    if (!row.dirty) dirty_.push_back(flow.row);
    row.dirty = changed_ = true;
    links_[row.link].stale = links_[flow.worker_link].stale = true;
  }
  // Sums in the order of workers, then servers: weights round.
  void weigh_row(Row& row) {
    Link& link = links_[row.link];
    if (!link.stale) return;
    double sum = even_ ? static_cast<double>(row.flows.size()) : 0;
    if (!even_)
      for (const MaxMinFlow* flow : row.flows) sum += flow->weight;
    link.weigh(static_cast<int>(row.flows.size()), sum);
  }
  void weigh_worker_link(Link& link) {
    if (!link.stale) return;
    double sum = 0;
    int n = 0;
    for (int w : link.workers)
      for (int s = 0; s < in_.servers; ++s)
        if (const MaxMinFlow& flow = flows_[size_t(s) * in_.workers + w]; running(flow)) sum += flow.weight, ++n;
    link.weigh(n, sum);
  }
  // It has a clock, or has just started.
  bool running(const MaxMinFlow& flow) const { return flow.clock != nullptr || flow.left > 0; }

  // If every row is far below what any worker's NIC can ever give, those that changed can be seen alone.
  bool share_plain_rows() {
    double limit = std::min(in_.flow_bytes_per_s, least_worker_share_) / (heaviest_ * clearly);
    for (Row& row : rows_) {
      if (!row.dirty && !heavier_) continue;
      weigh_row(row);
      row.safe = row.flows.empty() || links_[row.link].share * clearly < limit;
    }
    heavier_ = false;
    for (const Row& row : rows_)
      if (!row.safe || !(row.plain || row.flows.empty())) return false;
    for (int r : dirty_) settle_plain(rows_[r]);
    dirty_.clear();
    return true;
  }
  void settle_plain(Row& row) {
    row.dirty = false;
    if (row.flows.empty()) return;
    Link& link = links_[row.link];
    run_clock(link.clock, link.share);
    for (MaxMinFlow* flow : row.flows)
      if (flow->clock == nullptr) place(*flow, link.clock);
  }
  void run_clock(Clock& clock, double level) {
    if (clock.empty() || level != clock.level) {
      clock.tick(now_);
      clock.run_at(level);
      look_at(clock);
    }
  }
  void place(MaxMinFlow& flow, Clock& clock) {
    flow.target = clock.at(now_.time()) + flow.left / flow.weight;
    flow.left = 0;
    clock.add(flow);
    look_at(clock);
  }

  // Plain rows first, in the order in which they fill; then the rest. False if a limit per flow may matter.
  bool share_rows() {
    order_.clear();
    for (size_t r = 0; r < rows_.size(); ++r)
      if (!rows_[r].flows.empty()) order_.push_back(static_cast<int>(r));
    std::sort(order_.begin(), order_.end(), [this](int a, int b) {
      const Link &one = links_[rows_[a].link], &other = links_[rows_[b].link];
      return one.share < other.share || (one.share == other.share && rows_[a].link < rows_[b].link);
    });
    double limit = in_.flow_bytes_per_s / (heaviest_ * clearly);
    // Shares of workers' NICs only grow while others fill: what they were before is a lower bound.
    double least = infinity;
    for (int l : worker_links_) {
      weigh_worker_link(links_[l]);
      least = std::min(least, links_[l].share);
    }
    size_t plain = 0, taken = 0;
    bool filled = false;
    for (; plain < order_.size(); ++plain) {
      double level = links_[rows_[order_[plain]].link].share;
      if (level >= limit) return false;
      if (level * clearly < least) continue;
      if (!filled)
        for (int link : worker_links_) links_[link].fill();
      filled = true;
      for (; taken < plain; ++taken) take_plain(rows_[order_[taken]]);
      least = infinity;
      for (int link : worker_links_)
        if (links_[link].flows_left > 0) least = std::min(least, links_[link].share_now());
      if (level * clearly >= least) break;
    }
    if (plain < order_.size() && !fill_rest(plain, limit)) return false;
    for (size_t i = 0; i < order_.size(); ++i) {
      Row& row = rows_[order_[i]];
      Link& link = links_[row.link];
      bool was_plain = std::exchange(row.plain, i < plain);
      if (row.plain && was_plain && !row.dirty) continue;
      for (MaxMinFlow* flow : row.flows) {
        if (row.plain) flow->limit = &link.clock, flow->level = link.share;
        affected_.push_back(flow);
      }
    }
    settle();
    return true;
  }
  void take_plain(const Row& row) {
    double level = links_[row.link].share;
    for (MaxMinFlow* flow : row.flows) links_[flow->worker_link].take(level * flow->weight, flow->weight);
  }
  // All flows whose clock or whose clock's level may have changed have been given their limits.
  void settle() {
    moving_.clear();
    for (MaxMinFlow* flow : affected_) {
      if (flow->clock == flow->limit) continue;
      if (flow->clock != nullptr) {
        if (before_move) before_move(*flow);
        flow->left = std::max(0.0, (flow->target - flow->clock->at(now_.time())) * flow->weight);
        look_at(*flow->clock);
        flow->clock->remove(*flow);
      }
      moving_.push_back(flow);
    }
    for (MaxMinFlow* flow : affected_) run_clock(*flow->limit, flow->level);
    for (MaxMinFlow* flow : moving_) place(*flow, *flow->limit);
    affected_.clear();
    for (int r : dirty_) rows_[r].dirty = false;
    dirty_.clear();
  }

  // Progressive filling for the rows of order_ from `plain` on; those before have taken their part.
  bool fill_rest(size_t plain, double limit) {
    used_.clear();
    size_t rest = 0;
    for (size_t i = plain; i < order_.size(); ++i) {
      const Row& row = rows_[order_[i]];
      links_[row.link].fill();
      rest += row.flows.size();
      used_.push_back({row.link, order_[i]});
      for (MaxMinFlow* flow : row.flows) flow->waiting = true;
    }
    for (int link : worker_links_)
      if (links_[link].flows_left > 0) used_.push_back({link, -1});
    while (rest > 0) {
      auto [level, full] = next_full();
      if (level >= limit) return false;
      if (full.row >= 0) {
        for (MaxMinFlow* flow : rows_[full.row].flows)
          if (flow->waiting) give(*flow, level, full.link, flow->worker_link), --rest;
      } else {
        for (int w : links_[full.link].workers)
          for (int s = 0; s < in_.servers; ++s)
            if (MaxMinFlow& flow = flows_[size_t(s) * in_.workers + w]; flow.waiting)
              give(flow, level, full.link, rows_[s].link), --rest;
      }
    }
    return true;
  }
  struct Used {  // a link with flows that wait for their rates
    int link, row;  // the row, if it is a server's NIC
  };
  // The link with the least left for a unit of weight, the lowest of them if they tie.
  std::pair<double, Used> next_full() {
    double level = infinity;
    Used full{-1, -1};
    size_t kept = 0;
    for (Used used : used_) {
      Link& link = links_[used.link];
      if (link.flows_left == 0) continue;
      used_[kept++] = used;
      double share = link.share_now();
      if (share < level || (share == level && used.link < full.link)) level = share, full = used;
    }
    used_.resize(kept);
    return {level, full};
  }
  void give(MaxMinFlow& flow, double level, int full, int other) {
    flow.waiting = false;
    flow.limit = &links_[full].clock;
    flow.level = level;
    links_[full].take(level * flow.weight, flow.weight);
    links_[other].take(level * flow.weight, flow.weight);
  }

  // Progressive filling for all flows at once: for nodes that hold servers and workers, and limits per flow.
  void share_all() {
    waiting_.clear();
    for (size_t d = 0; d < rows_.size() / in_.servers; ++d)
      for (int w = 0; w < in_.workers; ++w)
        for (int s = 0; s < in_.servers; ++s)
          if (MaxMinFlow& flow = flows_[(d * in_.servers + s) * in_.workers + w]; running(flow))
            waiting_.push_back(&flow);
    affected_ = waiting_;
    fill();
    for (Row& row : rows_) {
      row.plain = false;
      for (MaxMinFlow* flow : row.flows) flow->waiting = false;
    }
    settle();
  }
  void fill() {
    used_.clear();
    for (Link& link : links_) link.flows_left = 0;
    for (MaxMinFlow* flow : waiting_)
      for (int l : {rows_[flow->row].link, flow->worker_link}) {
        Link& link = links_[l];
        if (link.flows_left++ == 0) {
          used_.push_back({l, -1});
          link.left = link.capacity;
          link.weight_left = 0;
          link.share_left = -1;
        }
        link.weight_left += flow->weight;
      }
    while (!waiting_.empty()) {
      auto [level, full] = next_full();
      bool limited = false;
      for (size_t i = 0; i < waiting_.size() && in_.flow_bytes_per_s < infinity && !limited; ++i)
        limited = in_.flow_bytes_per_s / waiting_[i]->weight <= level;
      size_t kept = 0;
      for (MaxMinFlow* flow : waiting_) {
        int there = rows_[flow->row].link, here = flow->worker_link;
        bool stops = limited ? in_.flow_bytes_per_s / flow->weight <= level : there == full.link || here == full.link;
        if (!stops) {
          waiting_[kept++] = flow;
          continue;
        }
        flow->level = limited ? in_.flow_bytes_per_s / flow->weight : level;
        flow->limit = limited ? &own_[flow - flows_.data()] : &links_[full.link].clock;
        double rate = limited ? in_.flow_bytes_per_s : level * flow->weight;
        links_[there].take(rate, flow->weight);
        links_[here].take(rate, flow->weight);
      }
      waiting_.resize(kept);
    }
  }

  void look_at(Clock& clock) { looked_at_.push_back(&clock); }
  void update_next(Clock& clock) {
    Event& next = nexts_[clock.number];
    bool was_first = !next.none() && next.whole() == next_.whole();
    next = clock.next();
    if (next < next_)
      next_ = next;
    else if (was_first)
      next_is_stale_ = true;
  }
  void find_next() {
    next_is_stale_ = false;
    next_ = Event{};
    for (const Event& next : nexts_) next_ = std::min(next_, next);
  }
  const Inputs& in_;
  const Now& now_;
  int first_;
  bool by_rows_ = true;  // one server a node, and no workers there
  std::vector<Link> links_;
  std::vector<int> worker_links_;
  std::vector<Row> rows_;
  std::vector<MaxMinFlow> flows_;
  std::vector<Clock> own_;
  std::vector<Event> nexts_;  // of the links' clocks, then of the flows' own
  bool even_;
  double heaviest_ = 0, least_worker_share_ = infinity;
  bool heavier_ = false;  // since rows were last found safe
  MaxMinFlow* ended_ = nullptr;
  bool changed_ = false, next_is_stale_ = false;
  std::vector<int> dirty_, order_;
  std::vector<MaxMinFlow*> affected_, moving_, waiting_;
  std::vector<Clock*> looked_at_;
  std::vector<Used> used_;
  Event next_;
};

}  // namespace planner
