package ledger

import "time"

// Day is from when to when a day lasts, as time.Date normalizes it. Its end is the beginning of the next one, also
// where a clock skips midnight.
func Day(year int, month time.Month, day int, zone *time.Location) (from, to time.Time) {
	return midnight(year, month, day, zone), midnight(year, month, day+1, zone)
}

func midnight(year int, month time.Month, day int, zone *time.Location) time.Time {
	at := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if at.Hour() >= 12 { // the hour before, since there is no midnight
		_, at = at.ZoneBounds()
	}
	return at
}
