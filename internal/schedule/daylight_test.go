package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-run/waybill/internal/suite"
)

// zoneOf returns a zone of the database that is linked into the program.
func zoneOf(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

func cronOf(t *testing.T, text string) *cron {
	t.Helper()
	c, err := parseCron(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// between returns the instants from one on, before another one, as local times with their offsets.
func between(c *cron, zone *time.Location, from, to time.Time) (texts []string) {
	for at := c.next(from.Add(-time.Millisecond), zone); !at.IsZero() && at.Before(to); at = c.next(at, zone) {
		texts = append(texts, at.In(zone).Format("01-02T15:04-07:00"))
	}
	return texts
}

// TestDaylightSaving: what happens when the clock is changed, in all changes of 2026 and 2027 of three zones. Lord Howe
// changes it by half an hour.
func TestDaylightSaving(t *testing.T) {
	const daily, hourly, twoHours, quarter = "30 2 * * *", "15 * * * *", "0 */2 * * *", "*/15 1-2 * * *"
	for _, c := range []struct{ zone, day, rule, want string }{
		// The clock skips 02:00 to 03:00: the instant is the one that it would be had the clock not been changed yet.
		{"Europe/Oslo", "2026-03-29", daily, "03-29T03:30+02:00"},
		{"Europe/Oslo", "2026-03-29", hourly, "03-29T00:15+01:00 03-29T01:15+01:00 03-29T03:15+02:00 03-29T04:15+02:00"},
		{"Europe/Oslo", "2026-03-29", twoHours, "03-29T00:00+01:00 03-29T03:00+02:00 03-29T04:00+02:00"},
		{"Europe/Oslo", "2027-03-28", daily, "03-28T03:30+02:00"},
		// The clock shows 02:00 to 03:00 twice: it is the first.
		{"Europe/Oslo", "2026-10-25", daily, "10-25T02:30+02:00"},
		{"Europe/Oslo", "2026-10-25", hourly, "10-25T00:15+02:00 10-25T01:15+02:00 10-25T02:15+02:00 10-25T02:15+01:00 10-25T03:15+01:00 10-25T04:15+01:00"},
		{"Europe/Oslo", "2026-10-25", twoHours, "10-25T00:00+02:00 10-25T02:00+02:00 10-25T04:00+01:00"},
		{"Europe/Oslo", "2027-10-31", daily, "10-31T02:30+02:00"},
		{"Europe/Oslo", "2027-10-31", quarter, "10-31T01:00+02:00 10-31T01:15+02:00 10-31T01:30+02:00 10-31T01:45+02:00 10-31T02:00+02:00 10-31T02:15+02:00 10-31T02:30+02:00 10-31T02:45+02:00"},
		{"America/New_York", "2026-03-08", daily, "03-08T03:30-04:00"},
		{"America/New_York", "2027-03-14", daily, "03-14T03:30-04:00"},
		{"America/New_York", "2026-03-08", "30 1 * * *", "03-08T01:30-05:00"},
		{"America/New_York", "2026-11-01", "30 1 * * *", "11-01T01:30-04:00"},
		{"America/New_York", "2027-11-07", "30 1 * * *", "11-07T01:30-04:00"},
		{"America/New_York", "2026-11-01", hourly, "11-01T00:15-04:00 11-01T01:15-04:00 11-01T01:15-05:00 11-01T02:15-05:00 11-01T03:15-05:00 11-01T04:15-05:00"},
		// 02:00 to 02:30 are skipped in October, and 01:30 to 02:00 come twice in April.
		{"Australia/Lord_Howe", "2026-10-04", "10 2 * * *", "10-04T02:40+11:00"},
		{"Australia/Lord_Howe", "2027-10-03", "10 2 * * *", "10-03T02:40+11:00"},
		{"Australia/Lord_Howe", "2026-10-04", daily, "10-04T02:30+11:00"},
		{"Australia/Lord_Howe", "2026-10-04", hourly, "10-04T00:15+10:30 10-04T01:15+10:30 10-04T03:15+11:00 10-04T04:15+11:00"},
		{"Australia/Lord_Howe", "2026-04-05", "45 1 * * *", "04-05T01:45+11:00"},
		{"Australia/Lord_Howe", "2027-04-04", "45 1 * * *", "04-04T01:45+11:00"},
		{"Australia/Lord_Howe", "2026-04-05", "45 * * * *", "04-05T00:45+11:00 04-05T01:45+11:00 04-05T01:45+10:30 04-05T02:45+10:30 04-05T03:45+10:30 04-05T04:45+10:30"},
	} {
		zone := zoneOf(t, c.zone)
		day, err := time.ParseInLocation(time.DateOnly, c.day, zone)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Date(day.Year(), day.Month(), day.Day(), 5, 0, 0, 0, zone)
		if got := strings.Join(between(cronOf(t, c.rule), zone, day, until), " "); got != c.want {
			t.Errorf("%s %s %q:\n%s, want\n%s", c.zone, c.day, c.rule, got, c.want)
		}
	}
}

// TestEachLocalTimeOnce: over two years, a rule that doesn't name every hour has one instant for each date and time that it
// names, a rule that names every hour has one for each hour of the clock, and the instants only grow.
func TestEachLocalTimeOnce(t *testing.T) {
	for _, name := range []string{"Europe/Oslo", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Cairo", "UTC"}[:suite.Of(t, 1, 6)] {
		zone := zoneOf(t, name)
		from, to := time.Date(2026, 1, 1, 0, 0, 0, 0, zone), time.Date(2028, 1, 1, 0, 0, 0, 0, zone)
		days := int(to.Sub(from).Round(24*time.Hour) / (24 * time.Hour))
		for rule, perDay := range map[string]int{"30 2 * * *": 1, "10,40 0-4 * * *": 10, "0 9 * * *": 1, "0 0 * * *": 1, "59 23 * * *": 1} {
			got := between(cronOf(t, rule), zone, from, to)
			if name == "Antarctica/Troll" && perDay == 10 {
				continue // two hours are skipped: some of its times fall on other ones
			}
			if slices.Sort(got); len(got) != days*perDay && !(perDay == 10 && len(got) >= days*perDay-8) {
				t.Errorf("%s %q: %d instants, want %d", name, rule, len(got), days*perDay)
			}
		}
		hours, last := 0, time.Time{}
		for at := cronOf(t, "0 * * * *").next(from.Add(-1), zone); at.Before(to); at = cronOf(t, "0 * * * *").next(at, zone) {
			if !at.After(last) || at.In(zone).Minute() != 0 {
				t.Fatalf("%s: %s after %s", name, at, last)
			}
			hours, last = hours+1, at
		}
		if want := int(to.Sub(from) / time.Hour); hours < want-4 || hours > want+4 {
			t.Errorf("%s: %d hours, want about %d", name, hours, want)
		}
	}
}

// TestNextIsTheFirst: the next instant is the first one that a search minute by minute finds, around each change.
func TestNextIsTheFirst(t *testing.T) {
	for _, name := range []string{"Europe/Oslo", "America/New_York", "Australia/Lord_Howe"}[:suite.Of(t, 1, 3)] {
		zone := zoneOf(t, name)
		for _, rule := range []string{"30 2 * * *", "*/20 1-3 * * *", "15 * * * *", "0 9 * * mon", "5 2 29 2 *", "0 0 1 * *", "0 3 13 * fri"} {
			c := cronOf(t, rule)
			for _, month := range []time.Month{time.March, time.April, time.October, time.November} {
				list := all(c, zone, time.Date(2026, month, 1, 0, 0, 0, 0, zone), time.Date(2026, month+1, 12, 0, 0, 0, 0, zone))
				from := time.Date(2026, month, 1, 0, 0, 0, 0, zone)
				for i := range 33 * 8 {
					after := from.Add(time.Duration(3*i)*time.Hour + 17*time.Minute)
					at := slices.IndexFunc(list, func(x time.Time) bool { return x.After(after) })
					if at < 0 {
						break
					}
					if got := c.next(after, zone); !got.Equal(list[at]) {
						t.Fatalf("%s %q after %s: %s, want %s", name, rule, after, got.In(zone), list[at].In(zone))
					}
				}
			}
		}
	}
}

// all returns all instants of a range, from each of its local times.
func all(c *cron, zone *time.Location, from, to time.Time) (list []time.Time) {
	seen := map[string]bool{}
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		local := at.In(zone)
		date := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
		wall := local.Format("2006-01-02T15:04")
		if c.onDay(date) && c.hours&(1<<local.Hour()) != 0 && c.minutes&(1<<local.Minute()) != 0 && (c.everyHour() || !seen[wall]) {
			seen[wall] = true
			list = append(list, at)
		}
		// The times that the clock skips after this minute, which has the offset before the change.
		_, before := local.Zone()
		_, after := at.Add(time.Minute).In(zone).Zone()
		for skipped := range (after - before) / 60 {
			gone := local.Add(time.Duration(0))
			h, m := gone.Hour(), gone.Minute()+1+skipped
			h, m = h+m/60, m%60
			if !c.everyHour() && c.onDay(date) && c.hours&(1<<h) != 0 && c.minutes&(1<<m) != 0 {
				list = append(list, at.Add(time.Duration(1+skipped)*time.Minute))
			}
		}
	}
	slices.SortFunc(list, time.Time.Compare)
	return slices.CompactFunc(list, time.Time.Equal)
}

func TestCronFaults(t *testing.T) {
	for text, why := range map[string]string{
		"* * * *": "4 fields", "60 * * * *": "isn't from 0 to 59", "* 24 * * *": "isn't from 0 to 23", "* * 0 * *": "isn't from 1 to 31", "* * * foo *": "isn't from 1 to 12",
		"* * * * 8": "isn't from 0 to 7", "5-1 * * * *": "ends before it begins", "*/0 * * * *": "no number from 1 on", "0 0 30 2 *": "none of its months", "0 0 31 4,6 *": "none of its months",
		"@daily": "1 fields", "? * * * *": "isn't from 0",
	} {
		if _, err := parseCron(text); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, same := range map[string]string{"0 9 * * mon-fri": "0 9 * * 1-5", "0 9 * JAN *": "0 9 * 1 *", "0 9 * * 7": "0 9 * * 0", "5/20 * * * *": "5,25,45 * * * *", "0 0-23/6 * * *": "0 0,6,12,18 * * *"} {
		a, b := cronOf(t, text), cronOf(t, same)
		if fmt.Sprint(*a) != fmt.Sprint(*b) {
			t.Errorf("%q isn't %q", text, same)
		}
	}
}
