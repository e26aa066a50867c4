
# The checker of what clients saw under faults: for each of its rules, histories that are wrong on
# purpose, and right histories that differ from them by little.  The comparer of replicas, with
# planted differences.  And the schedule of faults.

use strict;
use warnings;

use Test::More;

use FaultHistory;
use FaultSchedule;
use Replicas;

# A claim "ID KIND ASKED-GRANTED[-PROVED] [TOKEN]" of /m; its ID begins with the node, and is also
# that of the client.  Times are ms.  All other lines are records.
sub records
{
	my @records = FaultHistory::parse('op=config t=0 end=0 tenure=100 margin=100 timeout=2000');
	foreach (@_)
	{
		if (/^op=/)
		{
			my $record = FaultHistory::parse($_);
			$_ *= 1000 foreach grep { defined } @{$record}{qw(t end deadline lease timeout asked from)};
			push @records, $record;
			next;
		}
		my ($id, $node, $kind, $t, $end, $until, $token, $more) =
		  /^((.)\S*) (\w+) (\d+)-(\d+)(?:-(\d+))?(?: (\d+))?(.*)$/ or die $_;
		my %claim = (claim => $id, who => $id, node => $node, path => '/m', kind => $kind, pid => 7);
		my ($n, $quantity) = $kind =~ s/(\d)of(\d)// ? ($2, $1) : ();
		$claim{kind} = 'semaphore' if $n;
		push @records, { %claim, op => 'acquire', t => $t * 1000, end => $end * 1000, result => 'ok',
			n => $n, quantity => $quantity, map { split /=/ } split ' ', $more };
		push @records, { op => 'token', claim => $id, t => $end * 1000, end => $end * 1000,
			token => $token, result => 'ok' } if $token;
		push @records, { op => 'held', claim => $id, t => $until * 1000, end => $until * 1000 + 500,
			result => 'ok' } if $until;
	}
	return @records;
}

sub is_right
{
	my ($what, @history) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ FaultHistory->new(records(@history))->problems ], [], "right: $what");
}

sub is_wrong
{
	my ($what, $rule, @history) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @problems = FaultHistory->new(records(@history))->problems;
	is(scalar @problems, 1, "wrong: $what") or diag explain \@problems;
	return like($problems[0] // '', $rule, "wrong: $what: is said");
}

is_wrong('nothing', qr/^empty/);

# --- exclusion ---

is_right('one after the other', 'a mutex 1-2-5', 'b mutex 3-6-9');
is_right('granted while the other was asked', 'a mutex 1-2-5', 'b mutex 3-6-9', 'op=held claim=a t=5 end=8 result=ok');
is_right('what is denied proves nothing', 'a mutex 1-2-5', 'b mutex 3-6-9', 'op=held claim=a t=8 end=8 result=no');
is_right('what failed proves nothing', 'a mutex 1-2-5', 'b mutex 3-6-9', 'op=commit claims=a t=8 end=8 result=fail');
is_right('readers', 'a read 1-2-9', 'b read 1-3-8', 'c write 4-10-11');
is_right('a grant that may have been before', 'a mutex 1-9-12', 'b mutex 1-8');
is_wrong('both are held', qr/^exclusion: a .* and b /, 'a mutex 1-2-7', 'b mutex 3-6-9');
is_wrong('a grant within a hold', qr/^exclusion/, 'a mutex 1-2-7', 'b mutex 3-6');
is_wrong('a hold within a hold', qr/^exclusion/, 'a mutex 1-2-9', 'b mutex 3-4-5');
is_wrong('held again later', qr/^exclusion/, 'a mutex 1-2-3', 'b mutex 4-5-6', 'op=held claim=a t=7 end=8 result=ok');
is_wrong('a token proves it', qr/^exclusion/, 'a mutex 1-2', 'b mutex 4-5-6', 'op=token claim=a t=7 end=8 token=9 result=ok');
is_wrong('a commit proves it', qr/^exclusion/, 'a mutex 1-2', 'b mutex 4-5-6', 'op=commit claims=x,a t=7 end=8 result=ok');
is_wrong('not with its neighbour', qr/^exclusion: a .* and c /, 'a read 1-2-20', 'b read 3-4-5', 'c write 6-7-8');
is_wrong('a reader with a writer', qr/^exclusion/, 'a write 1-2-7', 'b read 3-6-9');

my $seen = FaultHistory->new(records('a mutex 1-2-7', 'b mutex 3-6-9', 'a2 mutex 20-21', 'op=fault what=x t=4 end=5', 'op=fault what=y t=20 end=21'));
is(join("\n", map { /^ *([\d.]+).* op=(\w+).*?((?:claim|what)=\w+)/ } $seen->excerpt($seen->problems)),
	join("\n", map { split / / } '0.001 acquire claim=a', '0.003 acquire claim=b', '0.004 fault what=x', '0.007 held claim=a', '0.009 held claim=b'),
	'the records of a problem');

# --- leases ---

is_right('all leases', 'a 2of3 1-2-9', 'b 1of3 1-3-9', 'c 2of3 5-10-11');
is_wrong('too many leases', qr/^leases: 4 of 3/, 'a 2of3 1-2-9', 'b 2of3 1-3-9');
is_wrong('one by one', qr/^leases: 3 of 2/, 'a 1of2 1-2-9', 'b 1of2 1-3-9', 'c 1of2 4-5-6');
is_wrong('one lease is exclusive', qr/^leases: 2 of 1/, 'a 1of1 1-2-9', 'b 1of1 1-3-9');

# --- an administrator takes a lock away ---

my $by_hand = 'op=foul node=a ended=1 t=4 end=5';
is_right('no client can foresee it', $by_hand, 'a mutex 1-2-7', 'b mutex 3-6-9');
is_wrong('others could', qr/^exclusion/, 'op=foul node=c t=4 end=5', 'a mutex 1-2-7', 'b mutex 3-6-9');
is_wrong('after a while it is known', qr/^survivor/, $by_hand, 'a mutex 1-2-7', 'op=held claim=a t=5006 end=5007 result=ok');
is_wrong('and then, no other client has it', qr/^exclusion/, $by_hand, 'a mutex 4000-4001-6000', 'b mutex 4000-4002-6000');
is_right('a lock that is taken away', 'op=foul path=/m t=4 end=5', 'a mutex 1-2-7', 'b mutex 3-6-9');
is_wrong('another lock', qr/^exclusion/, 'op=foul path=/x t=4 end=5', 'a mutex 1-2-7', 'b mutex 3-6-9');

# --- tokens ---

is_right('tokens grow', 'a mutex 1-2 5', 'b mutex 3-4 6', 'c mutex 5-6 9');
is_right('at the same time, any may be first', 'a mutex 1-4 6', 'b mutex 1-3 7');
is_right('of readers nothing is promised', 'a read 1-2 5', 'b read 3-4 5');
is_right('nor of many leases', 'a 1of2 1-2 5', 'b 1of2 3-4 4');
is_right('a claim keeps it', 'a mutex 1-2 5', 'op=token claim=a t=3 end=4 token=5 result=ok');
is_right('a downgrade keeps it', 'a write 1-2 5', 'a2 read 3-4', 'op=token claim=a2 t=3 end=4 token=5 same=5 result=ok');
is_wrong('a token shrinks', qr/^token: does not grow: a /, 'a mutex 1-2 5', 'b mutex 3-4 4');
is_wrong('not at once', qr/^token: does not grow: a /, 'a mutex 1-2 8', 'b mutex 3-4', 'c mutex 5-6 7');
is_wrong('a writer after a reader', qr/^token: does not grow/, 'a read 1-2 5', 'b write 3-4 5');
is_wrong('two have the same', qr/^token: the same/, 'a mutex 1-4 5', 'b mutex 1-3 5');
is_wrong('of one lease as well', qr/^token: does not grow/, 'a 1of1 1-2 5', 'b 1of1 3-4 4');
is_wrong('a claim changes it', qr/^token: changed from 5 to 6/, 'a mutex 1-2 5', 'op=token claim=a t=3 end=4 token=6 result=ok');
is_wrong('a downgrade changes it', qr/^token: changed from 5 to 6/, 'a write 1-2 5', 'a2 read 3-4',
	'op=token claim=a2 t=3 end=4 token=6 same=5 result=ok');

# --- lease times ---

is_right('within the lease time', 'a mutex 1-2-6 lease=5000');
is_wrong('beyond it', qr/^lease time/, 'a mutex 1-2-8 lease=5000');

# --- deadlines ---

my $late = 'op=acquire claim=b who=b node=b pid=7 path=/m kind=mutex t=0 end=1600 deadline=500 result=no';
my $granted = 'a mutex 1-2';
is_right('in time', $granted, 'op=acquire claim=b node=b pid=7 path=/m kind=mutex t=0 end=1490 deadline=500 result=no');
is_wrong('late', qr/^deadline: 1100 ms late/, $granted, $late);
is_wrong('an error that is late', qr/^deadline/, $granted, $late =~ s/=no/=fail/r);
is_right('it stood still', $granted, $late, 'op=stop node=b pid=7 t=300 end=500');
is_right('the server did', $granted, $late, 'op=stop node=b t=300 end=500');
is_wrong('another one did', qr/^deadline/, $granted, $late, 'op=stop node=b pid=8 t=300 end=500');
is_wrong('another server did', qr/^deadline/, $granted, $late, 'op=stop node=a t=300 end=500');
is_wrong('its worker did', qr/^deadline/, $granted, $late, 'op=stop node=b pid=worker t=300 end=500');
is_wrong('it stood still before', qr/^deadline/, $granted, $late, 'op=stop node=b pid=7 t=0 end=50');

# --- order ---

my $fair = 'op=config t=0 end=0 tenure=0 margin=100 timeout=2000';
my @overtaken = ('a mutex 1000-9000', 'b mutex 5000-8000', 'op=over claim=b t=8500 end=8500');
{
	no warnings 'redefine';
	my $general = \&records;
	*records = sub { my ($config, @rest) = $general->(@_); return (FaultHistory::parse($fair), @rest); };
	is_wrong('overtaken', qr/^fifo: b .* overtook a /, @overtaken);
	is_right('in order', 'a mutex 1000-4000', 'b mutex 2000-8000');
	is_right('nearly at once', 'a mutex 1000-9000', 'b mutex 1200-8000');
	is_right('something disturbed', @overtaken, 'op=fault what=x t=4000 end=4001');
	is_right('something had disturbed', @overtaken, 'op=fault what=x t=100 end=200');
	is_right('the server stood still', @overtaken, 'op=stop node=b t=4000 end=5000');
	is_wrong('a process stood still', qr/^fifo/, @overtaken, 'op=stop node=b pid=7 t=4000 end=5000');
	is_right('the turn of another of its server', @overtaken, 'b2 mutex 500-600', 'op=over claim=b2 t=950 end=950');
	is_right('another of the server waited too', @overtaken, 'a2 mutex 500-7000');
	*records = $general;
}
is_right('without fairness', @overtaken);

# --- stores ---

my @fenced = ('a mutex 1-2', map {
	my ($value, $token) = split / /;
	"op=audit store=fence node=a path=/m value=$value token=$token wid=$value t=99 end=99",
	"op=write store=fence node=a path=/m value=$value token=$token wid=$value result=ok t=$value end=$value"
} '0 5', '1 5', '2 9');
sub counter { my ($store, $n) = @_; return "op=counter store=$store node=a path=/m value=$n t=99 end=99"; }
sub guarded { return map { s/store=fence/store=guard/r } @_; }
sub put { my ($value, $wid, $more) = @_; return "op=audit store=fence node=a path=/m value=$value token=9 wid=$wid t=99 end=99",
	"op=write store=fence node=a path=/m value=$value token=9 wid=$wid t=20 $more"; }

is_right('a chain of writes', @fenced, counter('fence', 3));
is_right('one whose result is unknown', @fenced, put(3, 3, 'end=21 result=info'), counter('fence', 4));
is_right('one that did not happen', @fenced, 'op=write store=fence node=a path=/m wid=x t=1 end=1 result=info', counter('fence', 3));
is_wrong('a lost update', qr/^fence: lost update on a \/m/, @fenced, put(2, 'x', 'end=21 result=ok'), counter('fence', 3));
is_wrong('even if it takes long', qr/^fence: lost update/, @fenced, put(2, 'x', 'end=999 result=ok'), counter('fence', 3));
is_wrong('a hole', qr/^fence: lost update/, @fenced, put(4, 'x', 'end=21 result=ok'), counter('fence', 5));
is_wrong('another number at the end', qr/^fence: a \/m is 4, but was written 3/, @fenced, counter('fence', 4));
is_wrong('a token that shrinks', qr/^fence: token shrinks/, (map { s/token=9/token=4/r } @fenced), counter('fence', 3));
is_wrong('committed and not there', qr/^fence: is not there/, @fenced, counter('fence', 3),
	'op=write store=fence node=a path=/m wid=x t=1 end=1 result=ok');
is_wrong('refused and there', qr/^fence: is there/, @fenced, put(3, 'x', 'end=21 result=fail'), counter('fence', 4));
is_right('guarded', guarded(@fenced, counter('fence', 3)));
is_wrong('a lost update in spite of the guard', qr/^guard: lost update/,
	guarded(@fenced, put(2, 'x', 'end=21 result=ok'), counter('fence', 3)));
is_right('a commit that took longer than the margin', guarded(@fenced, put(2, 'x', 'end=121 result=ok'), counter('fence', 3)));

# --- jobs ---

# A call "ID TICK ASKED-ANSWERED RESULT", and what became of its run: "ran RESULT AT", which is
# in the database unless it is "lost", "gave_up RESULT AT", "settled STATE AT", or "crashed STATE
# AT", which is the same of a server that crashed.
sub calls
{
	my @records = $granted;
	foreach (@_)
	{
		my ($call, @ends) = split /, /;
		my ($id, $tick, $t, $end, $result, $more) = $call =~ /^(\S+) (\d+) (\d+)-(\d+) (\w+) ?(.*)$/ or die $call;
		push @records, "op=run claim=$id path=/j tick=$tick t=$t end=$end result=$result wall=1000 timeout=0 $more";
		foreach (@ends)
		{
			my ($what, $word, $at) = split / /;
			my $op = $what =~ /^(gave_up|settled)$/ ? $what : $what eq 'crashed' ? 'settled' : 'ran';
			my $is = $op ne 'settled' ? "result=$word" : "state=$word result=" . ($what eq 'crashed' ? 'info' : 'ok');
			push @records, "op=$op claim=$id wid=w$id t=$at end=$at $is";
			push @records, "op=ran_row path=/j tick=$tick wid=w$id t=99 end=99" if $what eq 'ran' && $word ne 'fail' || $what eq 'kept';
		}
	}
	return @records;
}
sub job_is_right { my ($what, @calls) = @_; return is_right("job: $what", calls(@calls)); }
sub job_is_wrong { my ($what, $rule, @calls) = @_; return is_wrong("job: $what", $rule, calls(@calls)); }

job_is_right('once a tick', 'a1 60 10-11 ok, ran ok 12', 'b1 60 10-12 no', 'b2 120 20-21 ok, ran ok 22', 'a2 60 30-31 no');
job_is_right('a failed run uses the tick up', 'a1 60 10-11 ok, gave_up ok 12', 'b1 60 13-14 no');
job_is_wrong('twice a tick', qr/^once: a1 .* and b1 /, 'a1 60 10-11 ok, ran ok 12', 'b1 60 13-14 ok');
job_is_wrong('twice, although the first failed', qr/^once/, 'a1 60 10-11 ok, gave_up ok 12', 'b1 60 13-14 ok, ran ok 15');
job_is_wrong('twice, although the server crashed', qr/^once/, 'a1 60 10-11 ok, ran ok 12, crashed started 13', 'b1 60 13-14 ok');
job_is_wrong('an older tick', qr/^older: a1 .* and b1 /, 'a1 120 10-11 ok', 'b1 60 12-13 ok');
job_is_wrong('not at once', qr/^older/, 'a1 120 10-11 ok', 'b1 180 12-30 ok', 'a2 60 14-15 ok');
job_is_right('at the same time, either may be first', 'a1 120 10-13 ok', 'b1 60 11-14 ok');
job_is_right('a minute ahead', 'a1 1060 10-11 ok');
job_is_wrong('in the future', qr/^ahead: a1/, 'a1 1062 10-11 ok');
job_is_right('which is refused', 'a1 9062 10-11 fail');

my $again = 'retry=1';
job_is_right('retry after a failure', "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 13-14 ok $again, ran ok 15, settled done 16");
job_is_right('after a refused commit', "a1 60 10-11 ok $again, ran fail 12", "b1 60 13-14 ok $again, ran ok 15");
job_is_right('after a crash before the record', "a1 60 10-11 ok $again, ran ok 12, crashed started 13", "b1 60 13-14 ok $again, ran ok 15");
job_is_right('after a commit of which nothing more is known', "a1 60 10-11 ok $again, ran info 12", "b1 60 13-14 ok $again, ran ok 15");
job_is_wrong('two commit', qr/^twice: a1 .* and b1 /, "a1 60 10-11 ok $again, ran ok 12, settled done 13", "b1 60 13-14 ok $again, ran ok 15");
job_is_wrong('one begins after a commit', qr/^twice/, "a1 60 10-11 ok $again, ran ok 12, settled done 13", "b1 60 13-14 ok $again, gave_up ok 15");
job_is_wrong('and takes its place in the record', qr/^twice/, "a1 60 10-11 ok $again, ran ok 12, settled replaced 20", "b1 60 13-14 ok $again, gave_up ok 15");
job_is_right('another tick does', "a1 60 10-11 ok $again, ran ok 12, settled replaced 20", "b1 120 13-14 ok $again, ran ok 15");
job_is_wrong('failed, says the record', qr/^record: failed/, "a1 60 10-11 ok $again, ran ok 12, settled failed 13");
job_is_wrong('a commit is lost', qr/^run: is not there/, 'a1 60 10-11 ok, lost ok 12');
job_is_wrong('what failed is there', qr/^run: is there/, 'a1 60 10-11 ok, kept fail 12');
is_wrong('job: rows of no client', qr/^run: of no client/, $granted, 'op=ran_row path=/j tick=60 wid=x t=99 end=99');

my $waits = 'timeout=1000';
job_is_right('refused by a later one', "a1 120 10-11 ok", "b1 60 12-13 no $waits");
job_is_right('by a run that goes on', "a1 60 10-11 ok $again", "b1 60 12-13 no $again $waits");
job_is_right('by one whose result is unknown', "a1 60 10-11 info $again", "b1 60 12-13 no $again $waits");
job_is_right('its time was over', "b1 60 12-1000 no $again $waits");
job_is_wrong('refused without a run', qr/^refused: b1/, "b1 60 12-13 no $waits");
job_is_wrong('by an older one', qr/^refused/, "a1 60 10-11 ok, ran ok 12", "b1 120 13-14 no $waits");
job_is_wrong('by one that has failed', qr/^refused/, "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 13-14 no $again $waits");
job_is_wrong('by one that was refused the commit', qr/^refused/, "a1 60 10-11 ok $again, ran fail 12", "b1 60 13-14 no $again $waits");
job_is_right('by one that fails later', "a1 60 10-11 ok $again, gave_up ok 20", "b1 60 13-14 no $again $waits");

job_is_right('the last one finds it done', "a1 60 10-11 ok $again, ran ok 12", "b1 60 90-91 no $again final=1");
job_is_right('or does it', "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 90-91 ok $again final=1, ran ok 92", "c1 60 93-94 no $again final=1");
job_is_right('without retry, it leaves it', 'a1 60 10-11 ok, gave_up ok 12', 'b1 60 90-91 no final=1');
job_is_wrong('no client does it', qr/^final: no client has run it: b1/, "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 90-91 no $again final=1");
job_is_wrong('there is an error at the end', qr/^final: no client/, "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 90-91 fail $again final=1");
job_is_right('or calls again', "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 90-91 ok $again final=1, ran fail 92", "b2 60 93-94 ok $again final=1, ran ok 95");
job_is_wrong('the last one does not commit', qr/^final: has not/, "a1 60 10-11 ok $again, gave_up ok 12", "b1 60 90-91 ok $again final=1, ran fail 92");

# --- leadership ---

# Commits "NODE TOKEN ASKED-COMMITTED": the answers took 1 ms each.
sub led
{
	my $n = 0;
	return $granted, map {
		my ($node, $token, $asked, $end, $more) = /^(\w) (\d+) (\d+)-(\d+) ?(.*)$/ or die $_;
		my ($result) = $more =~ /(\w+)/ ? $1 : 'ok';
		$n++;
		("op=led node=$node path=/l token=$token wid=l$n asked=$asked from=" . ($asked + 1) . ' t=' . ($end - 1) . " end=$end result=$result",
			$more =~ /lost/ || ($result ne 'ok' && $more !~ /kept/) ? () : "op=led_row node=$node token=$token wid=l$n t=99 end=99") } @_;
}
sub lead_is_right { my ($what, @led) = @_; return is_right("leaders: $what", led(@led)); }
sub lead_is_wrong { my ($what, $rule, @led) = @_; return is_wrong("leaders: $what", $rule, led(@led)); }

lead_is_right('one after the other', 'a 5 10-20', 'a 5 15-30', 'b 6 40-50', 'a 7 60-70');
lead_is_right('one was refused', 'a 5 10-20', 'b 6 30-40', 'a 5 25-50 fail');
lead_is_right('of one, the result is unknown', 'a 5 10-20', 'b 6 30-40', 'a 5 25-50 info');
lead_is_right('the answer of the one may have been before that of the other', 'a 5 10-20', 'b 6 19-30');
lead_is_wrong('two at a time', qr/^exclusion: a:5 .* and b:6/, 'a 5 10-30', 'b 6 20-40');
lead_is_wrong('one within the other', qr/^exclusion/, 'a 5 10-50', 'b 6 20-40');
lead_is_wrong('one between commits of the other', qr/^exclusion/, 'a 5 10-20', 'b 6 30-40', 'a 5 50-60');
lead_is_wrong('a token shrinks', qr/^token: does not grow/, 'a 5 10-20', 'b 4 30-40');
lead_is_wrong('a commit is lost', qr/^led: is not there/, 'a 5 10-20 ok lost');
lead_is_wrong('what was refused is there', qr/^led: is there/, 'a 5 10-20 fail kept');
is_wrong('leaders: and holders', qr/^exclusion/, 'a mutex 1-2-50', map { s{path=/l}{path=/m}r } grep { /^op/ } led('b 6 20-40'));

# --- what should not be ---

is_wrong('something is left', qr/^left/, $granted, 'op=left what=znode t=1 end=1');
is_wrong('something crashed', qr/^crash/, $granted, 'op=crash what=worker t=1 end=1');
is_wrong('no answer', qr/^hang/, $granted, 'op=hang what=COMMIT t=1 end=1');
is_wrong('stuck', qr/^stuck/, $granted, 'op=acquire claim=b who=b node=b pid=7 path=/m kind=mutex t=9 end=10 result=no must=1');
my $unknown = 'op=acquire claim=b who=b node=b pid=7 path=/m kind=mutex t=9 end=10 result=fail code=08006 must=1';
is_wrong('nothing is known', qr/^stuck/, $granted, $unknown);
is_right('nothing is known after the server stood still', $granted, $unknown, 'op=stop node=b t=7 end=9');

# --- replicas ---

sub tree
{
	my (%changed) = @_;
	my %stat = (czxid => 17, mzxid => 18, pzxid => 19, cversion => 2, ephemeralOwner => 0, data => 'x');
	my %tree = map { $_ => {%stat} } '/', '/zklock', '/zklock/m', '/zookeeper', '/zookeeper/config';
	foreach (keys %changed)
	{
		if ($changed{$_}) { $tree{$_} = { %stat, %{ $changed{$_} } }; }
		else { delete $tree{$_}; }
	}
	return \%tree;
}

sub differ
{
	my ($what, $trees, @differences) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is_deeply([ Replicas::differences(%$trees) ], \@differences, "replicas: $what");
}

my $same = 'czxid=0x11 mzxid=0x12 pzxid=0x13 cversion=2 ephemeralOwner=0x0 data=x';
differ('no difference', { 1 => tree(), 2 => tree(), 3 => tree() });
differ('a znode is missing', { 1 => tree(), 2 => tree('/zklock/m' => undef), 3 => tree() },
	"/zklock/m: $same on 1, 3; no such znode on 2");
differ('only one has a znode', { 1 => tree(), 2 => tree(), 3 => tree('/zklock/n' => {}) },
	"/zklock/n: $same on 3; no such znode on 1, 2");
foreach ([ czxid => 16, 'czxid=0x10' ], [ mzxid => 4294967296, 'mzxid=0x100000000' ], [ pzxid => 1, 'pzxid=0x1' ],
	[ cversion => 1, 'cversion=1' ], [ ephemeralOwner => 255, 'ephemeralOwner=0xff' ], [ data => '', 'data=' ])
{
	my ($field, $value, $text) = @$_;
	my %other = reverse 1 => $same, 2 => $same =~ s/\b$field=\S+/$text/r;
	differ("another $field", { 1 => tree(), 2 => tree('/zklock/m' => { $field => $value }) },
		'/zklock/m: ' . join '; ', map { "$_ on $other{$_}" } sort keys %other);
}
differ('three trees', { 1 => tree('/' => { cversion => 3 }), 2 => tree('/' => { cversion => 4 }), 3 => tree() },
	'/: ' . join '; ', map { my $n = $_; ($same =~ s/cversion=2/cversion=$n/r) . ' on ' . { 2 => 3, 3 => 1, 4 => 2 }->{$n} } 2 .. 4);
differ('two paths', { 1 => tree(), 2 => tree('/zklock' => undef, '/zklock/m' => undef) },
	map { "$_: $same on 1; no such znode on 2" } '/zklock', '/zklock/m');
differ('of its own, each server has what it likes', { 1 => tree(), 2 => tree('/zookeeper/config' => { data => 'y' }) });

# --- schedules ---

is_deeply(FaultSchedule->new(17, 60), FaultSchedule->new(17, 60), 'a seed plays again');
my %kinds = map { $_->{kind} => 1 } map { @{ FaultSchedule->new($_, 60)->{faults} } } 1 .. 100;
is_deeply([ sort keys %kinds ], [ sort keys %FaultSchedule::kinds ], 'every kind of fault has its turn');
{
	my @numbers = map { $_->{number} } @{ FaultSchedule->new(17, 60)->{faults} };
	local %ENV = (%ENV, FAULT_ONLY => '1,3,' . @numbers);
	is_deeply([ map { $_->{number} } @{ FaultSchedule->new(17, 60)->{faults} } ], [ 1, 3, scalar @numbers ], 'some faults of a seed');
	$ENV{FAULT_UNTIL} = 30;
	is_deeply([ map { $_->{number} } @{ FaultSchedule->new(17, 60)->{faults} } ], [ 1, 3 ], 'some of its beginning');
	$ENV{FAULT_ONLY} = 0;
	is_deeply(FaultSchedule->new(17, 60)->{faults}, [], 'none');
}
my @skews = map { $_->{settings}{skew} } map { FaultSchedule->new($_, 60) } 1 .. 100;
my @apart = map { abs($_->{a} - $_->{b}) } @skews;
is_deeply([ grep { $_ > 20 && $_ < 31_000_000 } @apart ], [], 'clocks differ by up to 20 s');
cmp_ok((grep { $_ > 15 && $_ <= 20 } @apart), '>', 0, 'some nearly by that');
cmp_ok((grep { $_ > 20 } @apart), '>', 10, 'and some are wrong by years');
my @chained = grep { $_->{what} =~ /^home:/ } map { @{ FaultSchedule->new($_, 60)->{faults} } } 1 .. 100;
cmp_ok(scalar @chained, '>', 100, 'faults follow one another');

done_testing();
