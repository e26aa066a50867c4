
# What three small ZooKeepers bear: ten servers with 1,000 locks each, on one machine and one disk with
# them, while these acquire locks, write, checkpoint, and lose the leader.  "test/fleet/run small [MB...]"
# runs it with these heaps; the table is in test/out/small.md.

use strict;
use warnings;

use List::Util qw(max sum);
use Time::HiRes qw(time sleep);

use ZklockTest;

my @heaps = @ARGV ? @ARGV : (64, 128, 256, 512);
my $locks = 1000;
my $zk = ZooKeeper->new(servers => 3, tick_time => 2000, start => 0);
my @nodes;

sub start_ensemble
{
	my ($heap) = @_;
	$zk->{java_opts} = "-Xmx${heap}m -XX:TieredStopAtLevel=4 -Dzookeeper.forceSync=yes -Dzookeeper.preAllocSize=65536 -Xlog:gc:gc.$heap";
	$zk->start;
	return;
}

# One process for each server; returns how many seconds they took together.
sub on_all
{
	my ($sql) = @_;
	my $begin = time;
	my @backends = map { $_->{session} } @nodes;
	$_->send($sql) foreach @backends;
	$_->answer foreach @backends;
	return time - $begin;
}

sub total { my ($column) = @_; return sum map { $_->status("(SELECT $column FROM zk_stat)") } @nodes; }
sub latency { my ($i, $what) = @_; return $zk->cmd('mntr', $i) =~ /^zk_${what}_latency\s+([\d.]+)/m ? $1 : 0; }
sub latencies { return sprintf '%.1f / %.0f', map { my $what = $_; max map { latency($_, $what) } 1 .. 3 } 'avg', 'max'; }
sub rss { return max map { slurp_file('/proc/' . $zk->pid($_) . '/status') =~ /^VmRSS:\s+(\d+)/m ? $1 / 1024 : 0 } 1 .. 3; }

# Longest pause in ms, and MB in use after the last collection.
sub collections
{
	my ($heap) = @_;
	my @logs = map { slurp_file("$zk->{directory}/$_/gc.$heap") } 1 .. 3;
	return (scalar(map { /Pause/g } @logs), max(0, map { /Pause .* ([\d.]+)ms/g } @logs), max(0, map { (/->(\d+)M/g)[-1] // 0 } @logs));
}

start_ensemble($heaps[0]);
foreach my $i (1 .. 10)
{
	my $node = ZklockNode->started("n$i", $zk, 'zklock.session_timeout' => '10s', 'zklock.connection_timeout' => '1min',
		'zklock.linger' => 0, 'zklock.max_locks_per_backend' => 2000, fsync => 'on', 'max_wal_size' => '64MB', 'shared_buffers' => '16MB');
	$node->safe_psql('postgres', 'CREATE TABLE work (n int, t text)');
	$node->{session} = $node->backend;
	push @nodes, $node;
}
my $held = "(SELECT count(zk_lock_acquire(format('/held/%s/%s', current_setting('zklock.node_name'), i))) FROM generate_series(1, $locks) AS i)";
my $fresh = 0;
my @table = ('| heap | 10,000 locks acquired in | new locks a second | latency: average, longest, ms | the same beside writes and checkpoints | '
	  . 'collections: longest, ms | in use after, MB | memory of the process, MB | leader killed: seconds until all are safe | in doubt, s | lost |',
	'| ---: | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |');
foreach my $heap (@heaps)
{
	if ($heap != $heaps[0])
	{
		on_all('SELECT zk_lock_release_all()');
		$zk->stop;
		start_ensemble($heap);
		$_->wait_until_connected foreach @nodes;
	}
	my $doubt = total('doubt_time');
	my $filled = on_all("SELECT $held");

	$fresh++;
	$zk->cmd('srst', $_) foreach 1 .. 3;
	my $churn = on_all("DO \$\$ BEGIN FOR i IN 1 .. 1000 LOOP PERFORM zk_lock_acquire('/new/$fresh/' || current_setting('zklock.node_name') || '/' || i);"
		  . " PERFORM zk_lock_release('/new/$fresh/' || current_setting('zklock.node_name') || '/' || i); END LOOP; END \$\$");
	sleep 10;
	my $quiet = latencies();

	$zk->cmd('srst', $_) foreach 1 .. 3;
	on_all("INSERT INTO work SELECT i, repeat('x', 500) FROM generate_series(1, 30000) AS i") foreach 1 .. 2;
	on_all('CHECKPOINT');
	my $beside = latencies();
	my $rss = rss();

	my ($leader) = $zk->leader;
	$zk->kill9($leader);
	my $begin = time;
	$_->wait_until('SELECT count(*) = 1 FROM zk_status WHERE state = \'connected\' AND safe AND connected_since > \'' . POSIX::strftime('%F %T+00', gmtime $begin) . '\' OR server <> \'' . $zk->address($leader) . "' AND safe") foreach @nodes;
	my $back = time - $begin;
	sleep 5;
	my ($n, $longest, $used) = collections($heap);
	push @table, sprintf '| %d MB | %.1f s | %.0f | %s | %s | %d: %.0f | %d | %.0f | %.1f s | %.1f | %d |', $heap, $filled, 10_000 / $churn,
	  $quiet, $beside, $n, $longest, $used, $rss, $back, total('doubt_time') - $doubt, total('lost');
	append_to_file("$ENV{LAB}/out/small.md", join '', map { "$_\n" } splice @table);
	$zk->start;
}
$_->{session}->quit, $_->stop foreach @nodes;
ok(1);
done_testing();
