// Schedulers: which chunk a link lane sends next; schedulers.py says how each policy behaves.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "inputs.hpp"

namespace planner {

struct Chunk {
  int32_t op = -1;  // -1: the lane has none
  bool last = true;
  bool flowing = false;
  double size = 0;  // bytes; 0 for computation
  double start_s = 0, flow_s = 0;
  double ready_s = 0;  // when its overhead is over
};

// Ops in the order of arrival. A step queues each op of a lane at most a known number of times and leaves the
// queue empty, so an array of that size never overflows.
class Fifo {
 public:
  void reserve(size_t n) { items_.resize(n); }
  bool empty() const { return head_ == tail_; }
  void push(int32_t op) { items_[tail_++] = op; }
  int32_t pop() {
    int32_t op = items_[head_++];
    if (head_ == tail_) head_ = tail_ = 0;
    return op;
  }

 private:
  std::vector<int32_t> items_;
  size_t head_ = 0, tail_ = 0;
};

// What the schedulers of all workers' lanes to one server in one direction have in common.
struct LinkTraits {
  const Inputs* in = nullptr;
  double overhead_s = 0;
  std::vector<std::vector<int32_t>> blocks;  // the members of each block on this link, in order
  size_t transfers = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const LinkTraits& link) : link_(link), gathered_(link.blocks.size(), 0) {
    Kind kind = link.in->policy.kind;
    if (kind == Kind::fifo) queue_.reserve(link.transfers);
    if (kind == Kind::multiplexed) queue_.reserve(2 * link.transfers);
  }

  void add(int32_t op) {
    const Policy& policy = link_.in->policy;
    switch (policy.kind) {
      case Kind::fifo:
      case Kind::multiplexed:
        queue_.push(op);
        break;
      case Kind::ordered:
      case Kind::sliced:
      case Kind::credit:
        push({policy.rank[op], arrivals_++, op, link_.in->bytes[op]});
        break;
      case Kind::blocks:
        if (int32_t block = policy.block[op]; block < 0) {
          push({policy.rank[op], arrivals_++, op, -1});
        } else if (++gathered_[block] == policy.members[op]) {
          gathered_[block] = 0;
          push({policy.rank[op], arrivals_++, op, block});
        }
        break;
    }
  }

  bool take(double now, Chunk& chunk) {
    const Policy& policy = link_.in->policy;
    chunk.last = true;
    chunk.ready_s = now + link_.overhead_s;
    switch (policy.kind) {
      case Kind::fifo:
        if (queue_.empty()) return false;
        chunk.op = queue_.pop();
        chunk.size = size(chunk.op);
        return true;
      case Kind::multiplexed:
        return take_window(policy, chunk);
      case Kind::ordered:
      case Kind::sliced: {
        if (heap_.empty()) return false;
        slice(policy, chunk);
        return true;
      }
      case Kind::credit:
        fill_pipe(policy, now);
        if (pipe_.empty()) return false;
        chunk = pipe_.front();
        pipe_.pop_front();
        return true;
      case Kind::blocks:
        return take_member(now, chunk);
    }
    return false;
  }

  void done(const Chunk& chunk) {
    switch (link_.in->policy.kind) {
      case Kind::multiplexed:
        if (!chunk.last) queue_.push(~chunk.op);
        break;
      case Kind::ordered:
      case Kind::sliced:
        put_back();
        break;
      case Kind::credit:
        in_flight_ -= chunk.size;
        break;
      case Kind::fifo:
      case Kind::blocks:
        break;
    }
  }

 private:
  struct Waiting {
    double rank;
    int64_t arrival;
    int32_t op;
    int64_t left;  // bytes; for blocks: the block, -1 for a lone transfer
  };
  static bool later(const Waiting& a, const Waiting& b) {
    return b.rank < a.rank || (b.rank == a.rank && b.arrival < a.arrival);
  }
  double size(int32_t op) const { return static_cast<double>(link_.in->bytes[op]); }
  void push(Waiting waiting) {
    heap_.push_back(waiting);
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  Waiting pop() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Waiting first = heap_.back();
    heap_.pop_back();
    return first;
  }
  // A stream that has sent its window waits as ~op.
  bool take_window(const Policy& policy, Chunk& chunk) {
    if (queue_.empty()) return false;
    int32_t item = queue_.pop();
    chunk.op = item < 0 ? ~item : item;
    int64_t bytes = link_.in->bytes[chunk.op];
    if (item < 0) {
      bytes -= policy.chunk_bytes;
    } else if (bytes > policy.chunk_bytes) {
      bytes = policy.chunk_bytes;
      chunk.last = false;
    }
    chunk.size = static_cast<double>(bytes);
    return true;
  }
  void slice(const Policy& policy, Chunk& chunk) {
    Waiting first = pop();
    int64_t bytes = policy.chunk_bytes ? std::min(first.left, policy.chunk_bytes) : first.left;
    chunk.op = first.op;
    chunk.size = static_cast<double>(bytes);
    chunk.last = bytes == first.left;
    first.left -= bytes;
    rest_ = first;
  }
  void put_back() {
    if (rest_.left > 0) push(rest_);
    rest_.left = 0;
  }
  void fill_pipe(const Policy& policy, double now) {
    while (!heap_.empty()) {
      double bytes = static_cast<double>(std::min(heap_.front().left, policy.chunk_bytes));
      if (in_flight_ + bytes > static_cast<double>(policy.credit_bytes)) return;
      Chunk chunk;
      slice(policy, chunk);
      put_back();
      chunk.ready_s = now + link_.overhead_s;
      in_flight_ += chunk.size;
      pipe_.push_back(chunk);
    }
  }
  bool take_member(double now, Chunk& chunk) {
    if (sending_ == nullptr) {
      if (heap_.empty()) return false;
      Waiting first = pop();
      if (first.left < 0) {
        chunk.op = first.op;
        chunk.size = size(first.op);
        return true;
      }
      sending_ = &link_.blocks[static_cast<size_t>(first.left)];
      sent_ = 0;
    } else {
      chunk.ready_s = now;
    }
    chunk.op = (*sending_)[sent_++];
    chunk.size = size(chunk.op);
    if (sent_ == sending_->size()) sending_ = nullptr;
    return true;
  }

  const LinkTraits& link_;
  Fifo queue_;                 // fifo, multiplexed
  std::vector<Waiting> heap_;  // the others
  int64_t arrivals_ = 0;
  Waiting rest_{0, 0, -1, 0};        // what is left of the transfer whose slice is on the link
  std::deque<Chunk> pipe_;           // credit
  double in_flight_ = 0;             // credit
  std::vector<int32_t> gathered_;    // blocks: members that are ready
  const std::vector<int32_t>* sending_ = nullptr;  // blocks: the one on the link
  size_t sent_ = 0;
};

}  // namespace planner
