
# Many servers on an ensemble of three ZooKeeper servers: what they cost it, idle and holding locks,
# and that none loses its session in an outage or a rolling restart.  Two of them are real, and the
# test measures their locks.  The others are ZooKeeper sessions that play workers: see Fleet.
#
# "make fleet" sets FLEET_SESSIONS and so chooses the full form, with a session timeout of 20 s,
# ZooKeeper servers with default settings, and a table.

use strict;
use warnings;

use Time::HiRes qw(time sleep);

use Fleet;
use ZklockTest;

my $full = $ENV{FLEET_SESSIONS};
my $n = $full // 100;
my $timeout = $full ? 20 : 10;
my $window = $full ? 2 * $timeout : 4;
my $locks = $full ? 300 : 100;

# A directory that is removed a minute after its last lock would count as a write in a phase that
# writes nothing.  The other options make the ZooKeeper servers as they are outside of tests: they
# sync their logs, and have the whole compiler.
my $java_opts = '-Dznode.container.checkIntervalMs=3600000';
$java_opts .= ' -Xmx512m -XX:TieredStopAtLevel=4 -Dzookeeper.forceSync=yes -Dzookeeper.preAllocSize=65536'
  if $full;
my $zk = ZooKeeper->new(servers => 3, java_opts => $java_opts, $full ? (tick_time => 2000) : ());
my @nodes = map {
	ZklockNode->started($_, $zk, 'zklock.session_timeout' => "${timeout}s",
		'zklock.linger' => '0', 'zklock.tenure' => '0')
} 'a', 'b';
foreach my $node (@nodes)
{
	$node->safe_psql('postgres', <<'END');
		CREATE PROCEDURE take_turns(path text, n int, INOUT taken int) LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1 .. n LOOP
				taken := taken + zk_lock_acquire(path, '30s')::int;
				PERFORM zk_lock_release(path);
			END LOOP;
		END $$;
END
}
my $held = $nodes[0]->backend;
my @backends = map { $_->backend } @nodes;
$zk->create('/zklock/fleet');
my $fleet = Fleet->new($zk, sessions => $n, timeout => $timeout);

# --- the locks of the two real servers ---

# The seconds until both servers have executed the locks.  Each returns $locks.
sub seconds_of
{
	my ($what, $sql) = @_;
	my $begin = time;
	$_->send($sql) foreach @backends;
	is($_->result->{out}, $locks, $what) foreach @backends;
	return time - $begin;
}

my %alone;
sub measure_locks
{
	my ($phase) = @_;
	my %seconds = (
		'locks on new paths' => seconds_of("$phase: locks on new paths",
			"SELECT count(*) FROM generate_series(1, $locks) AS i"
			  . " WHERE zk_lock_acquire(format('/$phase/%s/%s', current_setting('zklock.node_name'), i))"),
		'locks in turns' => seconds_of("$phase: locks in turns", "CALL take_turns('/turns', $locks, 0)"));
	$_->run('SELECT zk_lock_release_all()') foreach @backends;
	$_->wait_until('SELECT count(*) = 0 FROM zk_locks WHERE path <> \'/held\'') foreach @nodes;

	# The first locks are slower than all others, because Java has to warm up.
	%alone = %seconds if !%alone || $phase eq 'alone';
	return map {
		sprintf "two servers, $_, $phase: %.0f a second, %.2f times as many as alone",
		  2 * $locks / $seconds{$_}, $alone{$_} / $seconds{$_}
	} sort keys %seconds;
}

# --- the phases ---

my @results;
sub told { push @results, @_; note $_ foreach @_; return; }

sub is_sound
{
	my ($row, $holding, $may_doubt) = @_;
	is($row->{lost}, 0, "$row->{name}: no session is lost");
	is($row->{doubted}, 0, "$row->{name}: no session is in doubt") unless $may_doubt;
	is($row->{holding}, $holding, "$row->{name}: $holding locks are held");
	return;
}

my $written = $fleet->command('load 0 ' . ($full ? 10 : 2));
my $capacity = $written->{writes} / $written->{seconds};
cmp_ok($capacity, '>', 0, 'the ensemble writes');
told(sprintf 'the ensemble can write %.0f times a second', $capacity);
measure_locks('first');
told(measure_locks('alone'));

my $row = $fleet->phase('all connect', sub { $fleet->command('open'); $fleet->wait_for(usable => $n) });
is_sound($row, 0);

$row = $fleet->phase('idle', sub { sleep $window });
is_sound($row, 0);
is($row->{writes}, 0, 'idle servers write nothing');
told(measure_locks('idle'));

$row = $fleet->phase('all acquire a lock', sub { $fleet->command('hold'); $fleet->wait_for(holding => $n) });
is_sound($row, $n);
is($held->run(q{SELECT zk_lock_acquire('/held')})->{out}, 't', 'a real server holds one as well');
sub ephemerals { my ($count) = $zk->cmd('mntr') =~ /^zk_ephemerals_count\s+(\d+)$/m; return $count // 'none that ZooKeeper tells'; }

# ... besides those of the real servers: each has its record, and its place among the primaries.
sub wait_for_ephemerals
{
	my ($wanted) = @_;
	my $all = $wanted + 2 * @nodes;
	return 1 if eval { $zk->wait_until(sub { ephemerals() eq $all }, "$all ephemeral znodes") };
	die "${@}there are " . ephemerals() . "\n";
}
ok(wait_for_ephemerals($n + 1), 'ZooKeeper has their znodes, and those of the real servers');

$row = $fleet->phase('all hold a lock', sub { sleep $window });
is_sound($row, $n);
my $each = $row->{writes} / $row->{seconds} * $timeout / ($n + 1);
# All sessions began together, so a window may have one write more at its end.
cmp_ok($row->{writes}, '<=', ($n + 1) * (6 * $row->{seconds} / $timeout + 1),
	'a server that holds a lock writes up to five times in a session timeout, and a little');
cmp_ok($each, '>', 1, 'and its session is proved');
my $share = $row->{writes} / $row->{seconds} / $capacity;
told(sprintf 'servers that hold locks write %.1f times in a session timeout, in all %.1f %% of what the ensemble can',
	$each, 100 * $share);
cmp_ok($share, '<=', 0.1, 'they take at most a tenth of what the ensemble can write') if $full;
told(measure_locks('holding'));

my $half = int($capacity / 2);
$row = $fleet->phase('the same, the ensemble half used',
	sub { $written = $fleet->command("load $half " . ($full ? $timeout : 3)) });
is_sound($row, $n);
told(sprintf 'beside them, %.0f writes a second of other clients', $written->{writes} / $written->{seconds});

is($_->safe_psql('postgres', 'SELECT doubt_time FROM zk_stat'), 0, $_->name . ': was never in doubt') foreach @nodes;

# In the full form for longer than a session timeout, so that all locks are in doubt.
my $ahead = $row->{least_ahead};
$row = $fleet->phase('outage', sub { $zk->kill9; sleep($full ? 1.2 * $timeout : 4) });
is($row->{lost}, 0, 'outage: no session is lost');
is($row->{doubted}, $n, 'outage: all locks are in doubt') if $full;
cmp_ok($row->{least_ahead}, '<', $ahead - 1000, 'outage: safe until comes nearer');

my $served;
$row = $fleet->phase('all reconnect',
	sub {
		my $begin = time;
		$zk->start;
		$served = time - $begin;
		$fleet->wait_for(usable => $n);
		$fleet->wait_for(doubtful => 0);
	});
is($row->{lost}, 0, 'all reconnect: no session is lost');
is($row->{holding}, $n, "all reconnect: $n locks are held");
told(sprintf 'after the outage, three ZooKeepers started within %.1f s; the last session was back %.1f s after the first',
	$served, $row->{spread} / 1000);
$_->wait_until_connected foreach @nodes;

$row = $fleet->phase('rolling restart',
	sub {
		foreach my $i ($zk->followers, $zk->leader)
		{
			$fleet->look;
			$zk->restart($i);
			$fleet->wait_for(usable => $n);
			$fleet->wait_for(doubtful => 0);
			$fleet->look;
		}
	});

# The sessions of the short form are so short that some may be in doubt for a moment on a machine that has other work.
is_sound($row, $n, !$full);
told('after the rolling restart, the ZooKeepers have so many connections: ' . join ', ', $fleet->connections);
cmp_ok($row->{reconnects}, '>=', $n, 'rolling restart: each session had to reconnect');

# --- answers that are lost with their connections ---

# A leader that stood still with its followers may lead them on and yet answer nothing any more.
sub resume_all
{
	$zk->resume;
	return if eval { $fleet->wait_for(usable => $n); 1 };
	note "the leader answers nothing: $@";
	$zk->restart($zk->leader // ());
	return $fleet->wait_for(usable => $n);
}

$fleet->command('release');
wait_for_ephemerals(1);
foreach my $case ([ 'hold', $n ], [ 'release', 0 ])
{
	my ($command, $holding) = @$case;
	$zk->pause;
	$fleet->command($command);
	$fleet->wait_for(usable => 0);
	resume_all();
	$fleet->wait_for(holding => $holding);
	ok(wait_for_ephemerals($holding + 1), "$command: what was lost with a connection is asked again");
}

# --- the end ---

$_->wait_until_connected foreach @nodes;
is($held->run(q{SELECT zk_lock_is_held('/held')})->{out}, 't', 'the real server still holds its lock');
is($_->safe_psql('postgres', 'SELECT lost, expirations FROM zk_stat'), '0|0', $_->name . ': nothing was lost')
  foreach @nodes;
$held->run('SELECT zk_lock_release_all()');
$fleet->command('release');
wait_for_ephemerals(0);
$fleet->command('close');

my $report = join "\n", "$n sessions with a timeout of $timeout s on three ZooKeepers.", '', $fleet->table, @results, '';
note $report;
append_to_file("$ENV{LAB}/out/fleet.md", $report) if $full;

$_->quit foreach $held, @backends;
$_->stop foreach @nodes;
done_testing();
