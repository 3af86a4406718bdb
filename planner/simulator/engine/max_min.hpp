// Max-min fair rates over NICs, for the flows of one direction (or of both, if some node holds a worker and a
// server); the operations and their order are those of sharing.py's progressive filling.
//
// Flows lie in rows, one for each server's NIC, in the order of workers. Where many workers meet at few servers
// the servers' NICs fill first, each at the level capacity / flows, whatever the others do: such a row is
// "plain", and a change touches the flows of that row alone. Filling is worked out only for rows that may be
// limited by a worker's NIC too.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "events.hpp"

namespace planner {

class MaxMinShares {
 public:
  // `first`, `last`: the directions, 0 down and 1 up, whose flows it serves.
  MaxMinShares(const Inputs& in, int first, int last)
      : in_(in),
        first_(first),
        links_(in.nic_capacity.size()),
        rows_(size_t(last - first + 1) * in.servers),
        flows_(rows_.size() * in.workers),
        even_(in.fairness_sigma == 0) {
    std::vector<int> servers_on(in.nic_capacity.size(), 0);
    for (size_t r = 0; r < rows_.size(); ++r) {
      int direction = first + static_cast<int>(r) / in.servers, server = static_cast<int>(r) % in.servers;
      int there = in.server_nodes[server];
      rows_[r].link = 2 * there + direction;
      rows_[r].flows.reserve(in.workers);
      by_rows_ = by_rows_ && servers_on[rows_[r].link]++ == 0;
      for (int w = 0; w < in.workers; ++w) {
        Flow& flow = flows_[r * in.workers + w];
        flow.worker_link = 2 * in.worker_nodes[w] + 1 - direction;
        if (server == 0) links_[flow.worker_link].workers.push_back(w);
      }
    }
    by_rows_ = by_rows_ && first == last;
    for (size_t link = 0; link < links_.size(); ++link) {
      links_[link].capacity = in.nic_capacity[link];
      if (!links_[link].workers.empty()) worker_links_.push_back(static_cast<int>(link));
    }
  }

  void start(double now, int direction, int worker, int server, double size, double weight) {
    int f = index(direction, worker, server);
    Flow& flow = flows_[f];
    changed_ = changed_ || !flow.shared || flow.weight != weight;
    flow.size = flow.remaining = size;
    flow.since = now;
    flow.rate = 0;
    if (flow.weight != weight) flow.shared = false;
    flow.weight = weight;
    flow.running = true;
    heaviest_ = std::max(heaviest_, weight);
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
      for (int f : touched_) reschedule(flows_[f], flows_[f].fair_rate, now);
      for (int f : touched_) find_next(row_of(f));
    } else {
      for (int f : touched_) update_membership(f);
      if (!by_rows_ || !share_rows(now)) share_all(now);
      changed_ = false;
    }
    touched_.clear();
    next_ = Event{};
    for (const Row& row : rows_) next_ = std::min(next_, row.next);
  }
  Event next() const { return next_; }
  double delivered(double now, int direction, int worker, int server) const {
    const Flow& flow = flows_[index(direction, worker, server)];
    return flow.size - (flow.remaining - flow.rate * (now - flow.since));
  }

 private:
  struct Flow {
    double remaining = 0, since = 0, rate = 0, end_s = infinity, weight = 1, fair_rate = 0, size = 0;
    int worker_link = 0;
    bool running = false, shared = false;  // shared: counted, with this weight, when rates were last computed
    bool waiting = false;                  // for its rate, while rates are computed
  };
  struct Link {
    double capacity = 0, weight = 0, share = 0;  // of all flows, and the capacity for a unit of it
    double left = 0, weight_left = 0, share_left = 0;  // of flows that have no rate yet
    int flows = 0, flows_left = 0;
    std::vector<int> workers;  // that have this NIC, if it is one of workers
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
    bool dirty = false;      // flows came or went
    double level = -1;       // if all its flows have this rate, by weight
    std::vector<int> flows;  // running, in the order of workers
    Event next;
  };
  // A row is plain only if no worker's NIC comes near its level: rounding must not decide.
  static constexpr double clearly = 1 + 1e-9;

  int index(int direction, int worker, int server) const {
    return ((direction - first_) * in_.servers + server) * in_.workers + worker;
  }
  int row_of(int f) const { return f / in_.workers; }

  static void reschedule(Flow& flow, double fair_rate, double now) {
    flow.fair_rate = fair_rate;
    if (!flow.running || fair_rate == flow.rate) return;
    flow.remaining = std::max(0.0, flow.remaining - flow.rate * (now - flow.since));
    flow.since = now;
    flow.rate = fair_rate;
    flow.end_s = now + flow.remaining / fair_rate;
  }
  void find_next(int r) {
    Row& row = rows_[r];
    double end_s = infinity;
    int first = -1;
    for (int f : row.flows) {
      bool sooner = flows_[f].end_s < end_s;
      first = sooner ? f : first;
      end_s = sooner ? flows_[f].end_s : end_s;
    }
    int direction = first_ + r / in_.servers;
    row.next = first < 0 ? Event{}
                         : Event(end_s, event_key(direction == 0 ? DOWNLINK : UPLINK, first - r * in_.workers,
                                                  r % in_.servers));
  }
  void update_membership(int f) {
    Flow& flow = flows_[f];
    Row& row = rows_[row_of(f)];
    row.dirty = row.dirty || flow.running;  // if only for another chunk: it has no rate yet
    if (flow.shared == flow.running) return;
    row.dirty = true;
    auto place = std::lower_bound(row.flows.begin(), row.flows.end(), f);
    bool listed = place != row.flows.end() && *place == f;  // else its weight has changed
    if (flow.running && !listed) row.flows.insert(place, f);
    if (!flow.running && listed) row.flows.erase(place);
    flow.shared = flow.running;
    if (!by_rows_) return;
    weigh_row(row);
    weigh_worker_link(links_[flow.worker_link]);
  }
  // Sums in the order of workers, then servers: weights round.
  void weigh_row(Row& row) {
    Link& link = links_[row.link];
    link.flows = static_cast<int>(row.flows.size());
    link.weight = even_ ? link.flows : 0;
    if (!even_)
      for (int f : row.flows) link.weight += flows_[f].weight;
    link.share = link.flows > 0 ? link.capacity / link.weight : infinity;
  }
  void weigh_worker_link(Link& link) {
    link.weight = 0;
    link.flows = 0;
    for (int w : link.workers)
      for (int s = 0; s < in_.servers; ++s)
        if (const Flow& flow = flows_[size_t(s) * in_.workers + w]; flow.shared)
          link.weight += flow.weight, ++link.flows;
    link.share = link.flows > 0 ? link.capacity / link.weight : infinity;
  }

  // Plain rows first, in the order in which they fill; then the rest. False if a limit per flow may matter.
  bool share_rows(double now) {
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
    for (int link : worker_links_) least = std::min(least, links_[link].share);
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
    for (size_t i = 0; i < order_.size(); ++i) settle(order_[i], i < plain, now);
    for (size_t r = 0; r < rows_.size(); ++r)
      if (rows_[r].dirty) rows_[r].dirty = false, find_next(static_cast<int>(r));  // it has no flows left
    return true;
  }
  void take_plain(const Row& row) {
    double level = links_[row.link].share;
    for (int f : row.flows)
      links_[flows_[f].worker_link].take(level * flows_[f].weight, flows_[f].weight);
  }
  void settle(int r, bool plain, double now) {
    Row& row = rows_[r];
    double level = plain ? links_[row.link].share : -1;
    if (plain && !row.dirty && level == row.level) return;
    row.level = level;
    row.dirty = false;
    for (int f : row.flows) reschedule(flows_[f], plain ? level * flows_[f].weight : flows_[f].fair_rate, now);
    find_next(r);
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
      for (int f : row.flows) flows_[f].waiting = true;
    }
    for (int link : worker_links_)
      if (links_[link].flows_left > 0) used_.push_back({link, -1});
    while (rest > 0) {
      auto [level, full] = next_full();
      if (level >= limit) return false;
      if (full.row >= 0) {
        for (int f : rows_[full.row].flows)
          if (flows_[f].waiting) give(flows_[f], level, full.link, flows_[f].worker_link), --rest;
      } else {
        for (int w : links_[full.link].workers)
          for (int s = 0; s < in_.servers; ++s)
            if (Flow& flow = flows_[size_t(s) * in_.workers + w]; flow.waiting)
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
  void give(Flow& flow, double level, int full, int other) {
    flow.waiting = false;
    flow.fair_rate = level * flow.weight;
    links_[full].take(flow.fair_rate, flow.weight);
    links_[other].take(flow.fair_rate, flow.weight);
  }

  // Progressive filling for all flows at once: for nodes that hold servers and workers, and limits per flow.
  void share_all(double now) {
    waiting_.clear();
    for (size_t d = 0; d < rows_.size() / in_.servers; ++d)
      for (int w = 0; w < in_.workers; ++w)
        for (int s = 0; s < in_.servers; ++s) {
          int f = static_cast<int>((d * in_.servers + s) * in_.workers) + w;
          if (flows_[f].running) waiting_.push_back(f);
        }
    fill(waiting_);
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (int f : rows_[r].flows) {
        flows_[f].waiting = false;
        reschedule(flows_[f], flows_[f].fair_rate, now);
      }
      rows_[r].level = -1;
      rows_[r].dirty = false;
      find_next(static_cast<int>(r));
    }
  }
  void fill(std::vector<int>& waiting) {
    used_.clear();
    for (Link& link : links_) link.flows_left = 0;
    for (int f : waiting)
      for (int l : {rows_[row_of(f)].link, flows_[f].worker_link}) {
        Link& link = links_[l];
        if (link.flows_left++ == 0) {
          used_.push_back({l, -1});
          link.left = link.capacity;
          link.weight_left = 0;
          link.share_left = -1;
        }
        link.weight_left += flows_[f].weight;
      }
    while (!waiting.empty()) {
      auto [level, full] = next_full();
      bool limited = false;
      for (size_t i = 0; i < waiting.size() && in_.flow_bytes_per_s < infinity && !limited; ++i)
        limited = in_.flow_bytes_per_s / flows_[waiting[i]].weight <= level;
      size_t kept = 0;
      for (int f : waiting) {
        Flow& flow = flows_[f];
        int there = rows_[row_of(f)].link, here = flow.worker_link;
        bool stops = limited ? in_.flow_bytes_per_s / flow.weight <= level : there == full.link || here == full.link;
        if (!stops) {
          waiting[kept++] = f;
          continue;
        }
        flow.fair_rate = limited ? in_.flow_bytes_per_s : level * flow.weight;
        links_[there].take(flow.fair_rate, flow.weight);
        links_[here].take(flow.fair_rate, flow.weight);
      }
      waiting.resize(kept);
    }
  }

  const Inputs& in_;
  int first_;
  bool by_rows_ = true;  // one server a node, and no workers there
  std::vector<Link> links_;
  std::vector<int> worker_links_;
  std::vector<Row> rows_;
  std::vector<Flow> flows_;
  bool even_;
  std::vector<int> touched_, order_, waiting_;
  std::vector<Used> used_;
  double heaviest_ = 0;
  bool changed_ = false;
  Event next_;
};

}  // namespace planner
