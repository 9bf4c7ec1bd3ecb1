package membudget

import (
	"testing"
	"testing/fstest"
)

func TestDefaultFor(t *testing.T) {
	small := Default{Limit: 128 * mib, Total: 512 * mib, Source: Machine}
	half := small.Total / 100 * 50
	for _, tt := range []struct {
		name       string
		def        Default
		need, want int64
	}{
		{"the share is enough", small, 100 * mib, 128 * mib},
		{"the share is too little", small, 169 * mib, 169 * mib},
		{"all that may be", small, half, half},
		{"more than half", small, 300 * mib, half},
		{"a control group's share is more than half", Default{Limit: 400 * mib, Total: 500 * mib, Source: ControlGroup}, 450 * mib, 400 * mib},
		{"nothing is known", Default{Limit: unknownLimit, Source: Unknown}, 2 * unknownLimit, unknownLimit},
	} {
		if have := tt.def.For(tt.need); have != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, have, tt.want)
		}
	}
}

func TestDefaultLimit(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal:        8388608 kB\nMemFree:         1234 kB\n" // 8 GiB
	tests := []struct {
		name  string
		files map[string]string
		want  Default
	}{
		{"a machine", map[string]string{"proc/meminfo": meminfo}, Default{Limit: 8 * gib / 100 * 25, Total: 8 * gib, Source: Machine}},
		{"no /proc", nil, Default{Limit: gib, Source: Unknown}},
		{"meminfo that says nothing", map[string]string{"proc/meminfo": "MemTotal: many kB\n"}, Default{Limit: gib, Source: Unknown}},
		{
			"version 2", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/mesh.service\n",
				"sys/fs/cgroup/system.slice/mesh.service/memory.max": "1073741824\n",
				"sys/fs/cgroup/system.slice/memory.max":              "max\n",
			}, Default{Limit: gib / 100 * 80, Total: gib, Source: ControlGroup},
		},
		{
			"version 2, the group above is tighter", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/pods/a\n",
				"sys/fs/cgroup/pods/a/memory.max": "max\n", "sys/fs/cgroup/pods/memory.max": "536870912\n",
			}, Default{Limit: gib / 2 / 100 * 80, Total: gib / 2, Source: ControlGroup},
		},
		{
			"version 2 within a container: its own group is mounted as the root", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n",
			}, Default{Limit: gib / 100 * 80, Total: gib, Source: ControlGroup},
		},
		{
			"version 1 within a container: the path is the host's", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/docker/abc\n4:hugetlb,memory:/docker/abc\n0::/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
			}, Default{Limit: gib / 100 * 80, Total: gib, Source: ControlGroup},
		},
		{
			"version 1 without a limit", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/a\n",
				"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
			}, Default{Limit: 8 * gib / 100 * 25, Total: 8 * gib, Source: Machine},
		},
		{
			"a group larger than the machine", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "99999999999\n",
			}, Default{Limit: 8 * gib / 100 * 25, Total: 8 * gib, Source: Machine},
		},
		{
			"nonsense", map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "what\n0::../..\n:::\n", "sys/fs/cgroup/memory.max": "-5\n",
			}, Default{Limit: 8 * gib / 100 * 25, Total: 8 * gib, Source: Machine},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, data := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(data)}
			}
			if have := DefaultLimit(root); have != tt.want {
				t.Errorf("%+v, want %+v", have, tt.want)
			}
		})
	}
}

func TestMappedResident(t *testing.T) {
	const status = "Name:\tstatemesh\nVmRSS:\t  200 kB\nRssAnon:\t  100 kB\nRssFile:\t   90 kB\nRssShmem:\t   10 kB\nThreads:\t9\n"
	for _, tt := range []struct {
		name, status string
		want         int64
	}{
		{"files and shared memory", status, 100 << 10},
		{"no shared memory", "RssFile: 7 kB\n", 7 << 10},
		{"no such lines", "Name: x\n", 0},
		{"no number", "RssFile: many kB\n", 0},
	} {
		if have := MappedResident(fstest.MapFS{"proc/self/status": {Data: []byte(tt.status)}}); have != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, have, tt.want)
		}
	}
	if have := MappedResident(fstest.MapFS{}); have != 0 {
		t.Errorf("no /proc: %d", have)
	}
}
