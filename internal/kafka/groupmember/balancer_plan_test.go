package groupmember

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// group is a model of a consumer group: its members, and for each member the partitions that it claims to own and the
// generation in which they were assigned.
type group struct {
	partitions int32
	generation int32
	members    []*seat
	// frozen members are no longer in the group, but still claim their partitions.
	frozen []*seat
	given  map[string][]int32
	names  int
}

type seat struct {
	name       string
	static     bool
	owned      []int32
	generation int32
}

// round is one rebalance: all members join, the leader plans the assignment, and all members adopt it.
func (g *group) round() (withheld int, err error) {
	g.generation++
	claims := make([]memberClaim, len(g.members))
	for i, m := range g.members {
		claims[i] = memberClaim{owned: m.owned, generation: m.generation}
		if m.static {
			claims[i].previous = g.given[m.name]
		}
	}
	now, withheld := planPartitions(claims, g.partitions)
	taker := map[int32]string{}
	for i, ps := range now {
		for _, p := range ps {
			if other, ok := taker[p]; ok {
				return 0, fmt.Errorf("partition %d given to %s and to %s", p, other, g.members[i].name)
			}
			taker[p] = g.members[i].name
			for _, m := range g.members {
				if m != g.members[i] && slices.Contains(m.owned, p) && m.generation >= g.members[i].generation &&
					!slices.Contains(g.members[i].owned, p) {
					return 0, fmt.Errorf("partition %d given to %s before %s gave it up", p, g.members[i].name, m.name)
				}
			}
		}
	}
	for i, m := range g.members {
		m.owned, m.generation = now[i], g.generation
		if m.static {
			g.given[m.name] = now[i]
		}
	}
	return withheld, nil
}

func (g *group) settle(t *rapid.T) {
	const roundsMax = 4 // revoke, assign; twice if a stale claim interferes
	for n := 0; ; n++ {
		withheld, err := g.round()
		if err != nil {
			t.Fatal(err)
		}
		if withheld == 0 {
			break
		}
		if n == roundsMax {
			t.Fatalf("not settled after %d rounds, %d withheld", n, withheld)
		}
	}
	if len(g.members) == 0 {
		return
	}
	total, floor := 0, int(g.partitions)/len(g.members)
	for _, m := range g.members {
		total += len(m.owned)
		if len(m.owned) != floor && len(m.owned) != floor+1 {
			t.Fatalf("%s has %d of %d partitions among %d members", m.name, len(m.owned), g.partitions, len(g.members))
		}
	}
	if total != int(g.partitions) {
		t.Fatalf("%d of %d partitions have an owner", total, g.partitions)
	}
}

func TestPlacementOverRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &group{partitions: rapid.Int32Range(1, 40).Draw(t, "partitions"), given: map[string][]int32{}}
		some := func(of []*seat) int { return rapid.IntRange(0, len(of)-1).Draw(t, "which") }
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				g.names++
				g.members = append(g.members, &seat{name: fmt.Sprint("m", g.names), static: rapid.Bool().Draw(t, "static")})
			},
			"leave": func(t *rapid.T) {
				if len(g.members) > 0 {
					i := some(g.members)
					g.members = slices.Delete(g.members, i, i+1)
				}
			},
			"restart without memory": func(t *rapid.T) {
				if len(g.members) > 0 {
					g.members[some(g.members)].owned = nil
				}
			},
			"freeze": func(t *rapid.T) {
				if len(g.members) > 0 {
					i := some(g.members)
					g.frozen = append(g.frozen, g.members[i])
					g.members = slices.Delete(g.members, i, i+1)
				}
			},
			"thaw with stale claims": func(t *rapid.T) {
				if len(g.frozen) > 0 {
					i := some(g.frozen)
					g.members = append(g.members, g.frozen[i])
					g.frozen = slices.Delete(g.frozen, i, i+1)
				}
			},
			"one round": func(t *rapid.T) {
				if _, err := g.round(); err != nil {
					t.Fatal(err)
				}
			},
			"settle": func(t *rapid.T) { g.settle(t) },
		})
		g.settle(t)
		before := make([][]int32, len(g.members))
		for i, m := range g.members {
			before[i] = m.owned
		}
		g.settle(t)
		for i, m := range g.members {
			if !slices.Equal(before[i], m.owned) {
				t.Fatalf("%s: %v moved to %v although nothing changed", m.name, before[i], m.owned)
			}
		}
	})
}

// TestPlacementMovesTheLeast checks that a membership change moves only as many partitions as balance requires.
func TestPlacementMovesTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 40).Draw(t, "partitions")
		members := make([]memberClaim, rapid.IntRange(1, 8).Draw(t, "members"))
		for p := range partitions {
			if m := rapid.IntRange(-1, len(members)-1).Draw(t, "owner"); m >= 0 {
				members[m].owned = append(members[m].owned, p)
			}
		}
		floor, extra := int(partitions)/len(members), int(partitions)%len(members)
		most := 0
		for _, m := range members {
			most += min(len(m.owned), floor)
			if len(m.owned) > floor && extra > 0 {
				most++
				extra--
			}
		}
		now, _ := planPartitions(members, partitions)
		kept := 0
		for i, ps := range now {
			for _, p := range ps {
				if slices.Contains(members[i].owned, p) {
					kept++
				}
			}
		}
		if kept != most {
			t.Fatalf("%d partitions stayed where they were, %d could have", kept, most)
		}
	})
}

func TestStaticMemberGetsItsPartitionsBack(t *testing.T) {
	a, b, c := []int32{0, 3, 5, 9}, []int32{1, 2, 4, 11}, []int32{6, 7, 8, 10}
	now, withheld := planPartitions([]memberClaim{{owned: a, generation: 4}, {previous: b}, {owned: c, generation: 4}}, 12)
	if withheld != 0 || !slices.Equal(now[0], a) || !slices.Equal(now[1], b) || !slices.Equal(now[2], c) {
		t.Fatalf("got %v, %d withheld", now, withheld)
	}
}

func TestEqualClaimsAreGivenToNobodyFirst(t *testing.T) {
	now, withheld := planPartitions([]memberClaim{{owned: []int32{0, 1}, generation: 7}, {owned: []int32{1}, generation: 7}}, 2)
	if withheld != 1 || !slices.Equal(now[0], []int32{0}) || len(now[1]) != 0 {
		t.Fatalf("got %v, %d withheld", now, withheld)
	}
}
