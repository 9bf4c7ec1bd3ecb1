package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/demo"
	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/processor"
)

func newDemoCommand(p Process) *cobra.Command {
	var o demo.Options
	var brokers string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "demo",
		GroupID: groupTry,
		Short:   "Run the whole path on real data and check every answer",
		Long: `Start a broker and a fleet of instances as processes, load the flights that left New York in 2013 into four views,
kill one process while records flow, and ask every instance for every key, comparing each answer with what one plain
pass over the data says. Exits with 7 on one wrong or missing answer. Everything is removed at the end.

With --kill-every it goes on to kill one instance after the other while readers ask for keys of every partition, and shows for how
long they had no answer: those that accept a copy of some age, and those that insist on the owner.

With --brokers it runs on a Kafka of yours, under names of its own that it removes too.`,
		Example: `  statemesh demo
  statemesh demo --keep
  statemesh demo --standbys 1 --kill-every 5s
  statemesh demo --brokers kafka-1:9092 --instances 5 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(&o); err != nil {
				return usageError{err}
			}
			o.Env, o.Out = p.Env, cmd.OutOrStdout()
			k, err := configfile.LoadKafka(configfile.Source{Env: p.Env, Set: append([]string{"bootstrap.servers=" + cmp.Or(brokers, "127.0.0.1:0")}, o.Sets...)}, "")
			if err != nil {
				return err
			}
			if brokers != "" {
				o.Kafka = &k
			}
			if asJSON {
				o.Out = io.Discard
			}
			report, err := demo.Run(cmd.Context(), o)
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = errors.Join(err, enc.Encode(report))
			}
			if err == nil && report.Wrong() > 0 {
				return errWrong
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&brokers, "brokers", "", "run on this Kafka instead of an embedded broker, host:port[,host:port]")
	f.StringArrayVar(&o.Sets, "set", nil, "setting of the instances as key=value; may be repeated")
	f.IntVar(&o.Instances, "instances", 3, "instances of the fleet")
	f.Int32Var(&o.Partitions, "partitions", 4, "partitions of the topic")
	f.IntVar(&o.Records, "records", flights.Count, "flights to load")
	f.Float64Var(&o.Speed, "speed", 0, "most records per second (default no limit)")
	f.IntVar(&o.Standbys, "standbys", 0, "copies of each task on other instances (num.standby.replicas)")
	f.DurationVar(&o.KillEvery, "kill-every", 0, "at the end, kill an instance this often while readers read (default never)")
	f.IntVar(&o.Kills, "kills", 3, "how often to kill with --kill-every")
	f.StringVar(&o.Dir, "dir", "", "directory that keeps state and logs (default a temporary one)")
	f.BoolVar(&o.Keep, "keep", false, "leave the fleet up at the end and print commands to try")
	f.BoolVar(&asJSON, "json", false, "print one report as JSON instead of the story")
	return cmd
}

func checkDemo(o *demo.Options) error {
	var errs []error
	if o.Instances < 1 || o.Instances > 32 {
		errs = append(errs, fmt.Errorf("--instances %d: want 1 to 32", o.Instances))
	}
	if o.Partitions < 1 || o.Partitions > 1000 {
		errs = append(errs, fmt.Errorf("--partitions %d: want 1 to 1000", o.Partitions))
	}
	if o.Records < 100 || o.Records > flights.Count {
		errs = append(errs, fmt.Errorf("--records %d: want 100 to %d", o.Records, flights.Count))
	}
	if o.Speed < 0 {
		errs = append(errs, fmt.Errorf("--speed %g: want 0 for no limit, or more", o.Speed))
	}
	if o.Standbys < 0 || o.Standbys >= o.Instances {
		errs = append(errs, fmt.Errorf("--standbys %d: want 0 to %d, one less than --instances", o.Standbys, o.Instances-1))
	}
	if o.KillEvery < 0 || o.KillEvery > 0 && o.KillEvery < time.Second {
		errs = append(errs, fmt.Errorf("--kill-every %s: want 0 for never, or at least 1s", o.KillEvery))
	}
	if o.KillEvery > 0 && (o.Kills < 1 || o.Instances < 2) {
		errs = append(errs, fmt.Errorf("--kills %d of --instances %d: want at least 1, and 2 instances", o.Kills, o.Instances))
	}
	for _, set := range o.Sets {
		if key, value, _ := strings.Cut(set, "="); key == "processing.guarantee" && value != string(processor.ExactlyOnce) {
			errs = append(errs, fmt.Errorf("--set %s: the demo kills a process and wants exact answers, which takes exactly_once_v2", set))
		}
	}
	return errors.Join(errs...)
}
