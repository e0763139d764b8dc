package groupmember

import (
	"cmp"
	"slices"
)

// memberClaim is a group member as the planner sees it.
type memberClaim struct {
	// owned are the partition numbers that the member claims, as of generation.
	owned      []int32
	generation int32
	// previous are the numbers that a static member had before it restarted. They are a preference:
	// assigning them to others revokes nothing.
	previous []int32
}

const (
	unclaimed = -1 // no member claims it
	contested = -2 // several members claim it, of the same generation
)

// planPartitions divides the partition numbers [0, partitions) among members. It returns those of each
// member, sorted, and how many are withheld.
//
// Counts differ by one at most, and members keep what they own as far as that allows. By the cooperative
// rule a partition that changes its owner is assigned to nobody in this round: the old owner revokes it
// first, and the rebalance after that assigns it.
func planPartitions(members []memberClaim, partitions int32) (now [][]int32, withheld int) {
	now = make([][]int32, len(members))
	if len(members) == 0 {
		return now, 0
	}
	owner := currentOwners(members, partitions)
	preferred := preferredOwners(members, owner)
	plan := distribute(len(members), preferred)
	for p, m := range plan {
		// A claim of an older generation doesn't make an owner. Its member may fetch until this
		// round's answer reaches it; its transactions are fenced, as those of a frozen member.
		if owner[p] == unclaimed || owner[p] == m {
			now[m] = append(now[m], int32(p))
		} else {
			withheld++
		}
	}
	return now, withheld
}

// currentOwners returns for each partition the member with the newest claim.
func currentOwners(members []memberClaim, partitions int32) []int {
	owner := make([]int, partitions)
	newest := make([]int32, partitions)
	for p := range owner {
		owner[p] = unclaimed
	}
	for m, c := range members {
		for _, p := range c.owned {
			switch {
			case p < 0 || p >= partitions || owner[p] == m:
			case owner[p] == unclaimed || c.generation > newest[p]:
				owner[p], newest[p] = m, c.generation
			case c.generation == newest[p]:
				owner[p] = contested
			}
		}
	}
	return owner
}

// preferredOwners is owner, with unclaimed partitions assigned to the members that had them before a restart.
func preferredOwners(members []memberClaim, owner []int) []int {
	preferred := slices.Clone(owner)
	for m, c := range members {
		if len(c.owned) > 0 {
			continue
		}
		for _, p := range c.previous {
			if p >= 0 && int(p) < len(preferred) && preferred[p] == unclaimed {
				preferred[p] = m
			}
		}
	}
	return preferred
}

// distribute assigns every partition to one of n members: to the preferred one within its quota, else to any
// with capacity.
func distribute(n int, preferred []int) []int {
	count := make([]int, n)
	for _, m := range preferred {
		if m >= 0 {
			count[m]++
		}
	}
	// The members with the most partitions get the larger quotas: any other choice moves more partitions.
	byCount := make([]int, n)
	for m := range byCount {
		byCount[m] = m
	}
	slices.SortStableFunc(byCount, func(a, b int) int { return cmp.Compare(count[b], count[a]) })
	capacity := make([]int, n)
	for i, m := range byCount {
		capacity[m] = len(preferred) / n
		if i < len(preferred)%n {
			capacity[m]++
		}
	}

	plan := make([]int, len(preferred))
	var free []int
	for p, m := range preferred {
		if m < 0 || capacity[m] == 0 {
			free = append(free, p)
			continue
		}
		plan[p] = m
		capacity[m]--
	}
	m := 0
	for _, p := range free {
		for capacity[m] == 0 {
			m++
		}
		plan[p] = m
		capacity[m]--
	}
	return plan
}
