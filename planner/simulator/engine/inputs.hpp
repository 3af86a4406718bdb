// What a run reads and what it writes. Arrays belong to Python; the engine only looks at them.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace planner {

enum Resource : int { DOWNLINK = 0, WORKER = 1, UPLINK = 2, PS = 3, HOST = 4 };
enum class Kind { fifo, multiplexed, ordered, sliced, credit, blocks };

inline constexpr double infinity = std::numeric_limits<double>::infinity();

struct Policy {
  Kind kind = Kind::fifo;
  double overhead_s[2] = {0, 0};  // on downlinks, on uplinks
  int64_t chunk_bytes = 0, credit_bytes = 0;
  std::span<const double> rank;
  std::span<const int32_t> block, place, members;
};

struct Inputs {
  int workers = 0, channels = 0, ops = 0, rows = 0;
  std::span<const uint8_t> resource, gated;
  std::span<const int32_t> server, order, waiting, dependent_start, dependent_index, roots, transfers;
  std::span<const int32_t> publishes, awaits, publishers;
  std::span<const int64_t> bytes;
  std::span<const int32_t> scope, leaders;  // of joint ops, else -1; scopes x workers
  std::span<const double> durations;        // rows x ops
  std::span<const double> latency;          // of transfers, by op; empty: none has any
  std::span<const uint8_t> local;           // workers x channels: both ends are one node
  std::span<const int32_t> near, far;       // workers x channels: the nodes at the ends of a channel
  std::vector<double> speeds, start_offsets_s;
  std::span<const int32_t> pool_cores, server_pool, host_pool;  // cores, and who takes them where (-1: nowhere)
  bool tied = false, lockstep = false;  // some op waits for other workers; all workers are tied together
  Policy policy;

  bool equal_shares = false;  // else max-min over NICs
  double capacity[2] = {0, 0}, flow_limit[2] = {infinity, infinity};
  std::vector<double> nic_capacity;  // 2 * node: egress, 2 * node + 1: ingress
  double flow_bytes_per_s = infinity;

  uint64_t seed = 0, run = 0;
  int64_t steps = 0, warmup_steps = 0, max_events = std::numeric_limits<int64_t>::max();
  bool until_all = false, timeline = false;
  double fairness_sigma = 0, local_bytes_per_s = infinity, max_time_s = infinity;

  bool has_order() const { return !order.empty(); }
  std::span<const int32_t> dependents(int32_t op) const {
    return dependent_index.subspan(static_cast<size_t>(dependent_start[op]),
                                   static_cast<size_t>(dependent_start[op + 1] - dependent_start[op]));
  }
  int near_of(int w, int s) const { return near[size_t(w) * channels + s]; }
  int far_of(int w, int s) const { return far[size_t(w) * channels + s]; }
  // Servers that all workers reach, each from one node?
  bool star() const {
    for (int w = 0; w < workers; ++w)
      for (int s = 0; s < channels; ++s)
        if (near_of(w, s) != near_of(w, 0) || far_of(w, s) != far_of(0, s)) return false;
    return channels > 0;
  }
  // Does nobody ever wait for a core?
  bool cores_abound() const { return pool_cores.empty(); }
  // A worker's lanes: downlinks, the worker itself, uplinks, servers, the host.
  int lanes() const { return 2 + 3 * channels; }
  int lane_of(int r, int s) const {
    switch (r) {
      case DOWNLINK:
        return s;
      case WORKER:
        return channels;
      case UPLINK:
        return 1 + channels + s;
      case PS:
        return 1 + 2 * channels + s;
      default:
        return 1 + 3 * channels;
    }
  }
};

struct TimelineRow {
  int32_t worker, resource, server, op, step;
  double bytes, start_s, flow_s, end_s;
};

enum class Stopped { steps, time, events };

struct Result {
  std::vector<std::vector<double>> starts_s, ends_s;
  std::vector<std::vector<int32_t>> staleness;
  std::vector<double> used;  // workers x lanes, from measured_from_s to end_s
  double end_s = 0, measured_from_s = 0;
  int64_t events = 0;
  Stopped stopped = Stopped::steps;
  std::vector<TimelineRow> timeline;
};

using Poll = std::function<void()>;                  // throws if the user interrupts
inline constexpr int64_t poll_mask = (1 << 10) - 1;  // ask every 2^10 events: at most some milliseconds

}  // namespace planner
