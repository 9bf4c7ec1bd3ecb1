// Package windows is the arithmetic of windows: which windows a record is in, which are closed, which sessions it joins. It
// decides and does nothing: no store, no clock, no goroutine. Rules are upstream's (TimeWindows, SlidingWindows,
// SessionWindows and their processors); the views and whoever writes a processor of one's own act on them.
//
// Times are Unix milliseconds, at least 0. Stream time is the greatest time of the records so far, that of the record in hand
// included. A window is closed when no record may change it any more:
//
//	time window  [start, start+size)     closed at   end <= stream time - grace
//	sliding      [start, start+diff]                 end <  stream time - grace
//	session      [start, end]                        end <  stream time - grace - gap
//	unlimited    [start, ...)                        never
package windows
