package kafka

import (
	"cmp"
	"slices"
)

// memberClaim is a member of the group as a plan sees it.
type memberClaim struct {
	// owned are the partition numbers that the member says it has, as of
	// generation.
	owned      []int32
	generation int32
	// prior are the numbers that it is known to have had before it restarted
	// without any memory of its own (static members). They are a wish, not
	// possession: nothing has to be revoked to give them away.
	previous []int32
}

const (
	unclaimed = -1 // nobody says that he has it
	contested = -2 // several say so, of the same generation
)

// place divides the partition numbers [0, partitions) among members and
// returns those of each member, sorted, and how many are withheld.
//
// It balances within one, keeps what a member has as far as that allows, and
// keeps the cooperative rule: what one member has and another is to get is
// given to nobody in this round, so that the first gives it up before the
// second can start; the rebalance that follows the revocation places it.
func planPartitions(members []memberClaim, partitions int32) (now [][]int32, withheld int) {
	now = make([][]int32, len(members))
	if len(members) == 0 {
		return now, 0
	}
	owner := currentOwners(members, partitions)
	wish := preferredOwners(members, owner)
	plan := distribute(len(members), wish)
	for p, m := range plan {
		// A stale claim (of an older generation) does not make an owner, but
		// whoever makes it may still be fetching until this round's answer
		// reaches him; the transaction is what fences him, as it fences one
		// who is frozen.
		if owner[p] == unclaimed || owner[p] == m {
			now[m] = append(now[m], int32(p))
		} else {
			withheld++
		}
	}
	return now, withheld
}

// owners finds for each partition the member with the newest claim.
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

// preferredOwners is owner with the free partitions given to whoever had them before.
func preferredOwners(members []memberClaim, owner []int) []int {
	wish := slices.Clone(owner)
	for m, c := range members {
		if len(c.owned) > 0 {
			continue
		}
		for _, p := range c.previous {
			if p >= 0 && int(p) < len(wish) && wish[p] == unclaimed {
				wish[p] = m
			}
		}
	}
	return wish
}

// divide gives every partition to one of n members: to whom wish says as far
// as the quotas allow, else to one that has room.
func distribute(n int, wish []int) []int {
	count := make([]int, n)
	for _, m := range wish {
		if m >= 0 {
			count[m]++
		}
	}
	// Whoever has more than the floor keeps one more than the others, while
	// there are such places: any other choice moves more.
	byCount := make([]int, n)
	for m := range byCount {
		byCount[m] = m
	}
	slices.SortStableFunc(byCount, func(a, b int) int { return cmp.Compare(count[b], count[a]) })
	room := make([]int, n)
	for i, m := range byCount {
		room[m] = len(wish) / n
		if i < len(wish)%n {
			room[m]++
		}
	}

	plan := make([]int, len(wish))
	var free []int
	for p, m := range wish {
		if m < 0 || room[m] == 0 {
			free = append(free, p)
			continue
		}
		plan[p] = m
		room[m]--
	}
	m := 0
	for _, p := range free {
		for room[m] == 0 {
			m++
		}
		plan[p] = m
		room[m]--
	}
	return plan
}
