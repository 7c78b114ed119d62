// The levels of taking back, as the settings and single pools offer them.
export const PREEMPTION = [
  ["none", "Nobody is preempted"],
  ["reclaim", "Reserved work takes back what others borrowed"],
  ["priority", "And higher priority within a policy"],
  ["rank", "And better rank among over-quota work"],
];
