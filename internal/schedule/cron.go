package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cron is a parsed cron rule: five fields, each as a set of numbers.
type cron struct {
	minutes, hours, days, months, weekdays uint64 // bit n: the number n
	// eitherDay: the day of the month and the day of the week are both given, so one of them is enough.
	eitherDay bool
}

// everyHour reports whether the rule names all hours.
func (c *cron) everyHour() bool { return c.hours == 1<<24-1 }

// field is one of the five.
type field struct {
	name     string
	min, max int
	names    []string // of the numbers from min on
}

var fields = [5]field{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of the month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of the week", max: 7, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// daysMax are the days of each month, in a leap year.
var daysMax = [...]int{1: 31, 2: 29, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}

// parseCron parses five fields: numbers, names, lists, ranges and steps, as in crontab(5).
func parseCron(text string) (*cron, error) {
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return nil, fmt.Errorf("it has %d fields, want 5: minute, hour, day of the month, month, day of the week", len(parts))
	}
	var sets [len(fields)]uint64
	for i, part := range parts {
		set, err := fields[i].parse(part)
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", fields[i].name, part, err)
		}
		sets[i] = set
	}
	c := &cron{sets[0], sets[1], sets[2], sets[3], sets[4], false}
	if c.weekdays&(1<<7) != 0 { // 7 is Sunday too
		c.weekdays = c.weekdays&(1<<7-1) | 1
	}
	// As in crontab(5), a field that begins with a star restricts nothing by itself.
	c.eitherDay = !strings.HasPrefix(parts[2], "*") && !strings.HasPrefix(parts[4], "*")
	if !c.eitherDay && !c.possible() {
		return nil, fmt.Errorf("none of its months has such a day")
	}
	return c, nil
}

// possible reports whether a month has one of the days.
func (c *cron) possible() bool {
	for m := 1; m <= 12; m++ {
		if c.months&(1<<m) != 0 && c.days&(1<<(daysMax[m]+1)-1) != 0 {
			return true
		}
	}
	return false
}

func (f *field) parse(text string) (set uint64, err error) {
	for item := range strings.SplitSeq(text, ",") {
		span, step, stepped := strings.Cut(item, "/")
		from, to, err := f.span(span, stepped)
		if err != nil {
			return 0, err
		}
		by := 1
		if stepped {
			if by, err = strconv.Atoi(step); err != nil || by < 1 {
				return 0, fmt.Errorf("the step %q is no number from 1 on", step)
			}
		}
		for n := from; n <= to; n += by {
			set |= 1 << n
		}
	}
	return set, nil
}

// span parses *, N or N-M. With a step, N is N to the end.
func (f *field) span(text string, stepped bool) (from, to int, err error) {
	if text == "*" {
		if f.max == 7 {
			return 0, 6, nil
		}
		return f.min, f.max, nil
	}
	first, last, ranged := strings.Cut(text, "-")
	if from, err = f.number(first); err != nil {
		return 0, 0, err
	}
	switch {
	case ranged:
		if to, err = f.number(last); err == nil && to < from {
			err = fmt.Errorf("the range ends before it begins")
		}
	case stepped:
		to = f.max
	default:
		to = from
	}
	return from, to, err
}

func (f *field) number(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max {
		return 0, fmt.Errorf("%q isn't from %d to %d", text, f.min, f.max)
	}
	return n, nil
}

// onDay reports whether the rule has a date.
func (c *cron) onDay(day time.Time) bool {
	if c.months&(1<<day.Month()) == 0 {
		return false
	}
	inMonth, inWeek := c.days&(1<<day.Day()) != 0, c.weekdays&(1<<day.Weekday()) != 0
	if c.eitherDay {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// searchYears bounds the search for the next instant: 29 February can be eight years away.
const searchYears = 9

// changeMinutes is more than a clock is changed by: two hours, at Troll.
const changeMinutes = 130

// next returns the first instant of the rule after t; zero: there is none.
//
// A rule that names every hour follows the clock: a time that the clock skips has no instant, and one that the clock shows
// twice has two. Any other rule has one instant for each date and time that it names: if the clock skips the time, it is
// the one that it would be had the clock not been changed yet; if the clock shows it twice, it is the first.
func (c *cron) next(t time.Time, zone *time.Location) time.Time {
	if c.everyHour() {
		return c.nextOnClock(t, zone)
	}
	local := t.In(zone)
	// A change of the clock moves an instant by up to a day, so the search begins a day earlier, and ends a day later.
	day := time.Date(local.Year(), local.Month(), local.Day()-1, 0, 0, 0, 0, time.UTC)
	var found time.Time
	for end := day.AddDate(searchYears, 0, 0); day.Before(end); day = day.AddDate(0, 0, 1) {
		if c.onDay(day) {
			if at := c.nextOfDay(day, t, zone); !at.IsZero() && (found.IsZero() || at.Before(found)) {
				found = at
			}
		}
		if !found.IsZero() {
			if local := found.In(zone); day.After(time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)) {
				return found
			}
		}
	}
	return found
}

// nextOfDay returns the first instant after t of those that a date has; zero: there is none. day is the date, in UTC.
func (c *cron) nextOfDay(day, t time.Time, zone *time.Location) (found time.Time) {
	// If the clock isn't changed about that date, the instants are in the order of their local times.
	before, after := offsetAt(day.Add(-26*time.Hour), zone), offsetAt(day.Add(50*time.Hour), zone)
	for h := range 24 {
		if c.hours&(1<<h) == 0 {
			continue
		}
		for m := range 60 {
			if c.minutes&(1<<m) == 0 {
				continue
			}
			wall := day.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute)
			if before == after {
				if at := wall.Add(-before); at.After(t) {
					return at
				}
				continue
			}
			if at := resolve(wall, before, zone); at.After(t) && (found.IsZero() || at.Before(found)) {
				found = at
			}
		}
	}
	return found
}

// resolve returns the instant at which a clock in a zone shows a local time, given as if it were UTC. before is the offset
// before the clock is changed about then.
func resolve(wall time.Time, before time.Duration, zone *time.Location) time.Time {
	first := wall.Add(-before)
	if offsetAt(first, zone) == before {
		return first // not changed yet: also the first of two
	}
	if at := wall.Add(-offsetAt(first, zone)); offsetAt(at, zone) == offsetAt(first, zone) {
		return at // after the change
	}
	return first // skipped
}

func offsetAt(t time.Time, zone *time.Location) time.Duration {
	_, seconds := t.In(zone).Zone()
	return time.Duration(seconds) * time.Second
}

// nextOnClock is next of a rule that names every hour. It follows the clock minute by minute.
func (c *cron) nextOnClock(t time.Time, zone *time.Location) time.Time {
	at := t.Truncate(time.Minute).Add(time.Minute)
	for end := t.AddDate(searchYears, 0, 0); at.Before(end); {
		local := at.In(zone)
		date := time.Date(local.Year(), local.Month(), local.Day(), 0, 0, 0, 0, time.UTC)
		switch {
		case !c.onDay(date):
			// To the next date: not beyond it, if the clock is changed by up to two hours.
			left := 24*60 - local.Hour()*60 - local.Minute()
			at = at.Add(time.Duration(max(1, left-changeMinutes)) * time.Minute)
		case c.minutes&(1<<local.Minute()) == 0:
			at = at.Add(time.Minute)
		default:
			return at
		}
	}
	return time.Time{}
}
