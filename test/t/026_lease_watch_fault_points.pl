
# Of the leases that a server owns, one looks for all whether another server waits.  That one
# is given up after the watch has fired and before it has looked.  Needs servers with fault
# points (make FAULTS=1).

use strict;
use warnings;

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

$ENV{TEMP_CONFIG} = $ENV{FAULTS_CONFIG} // die 'no build with fault points: use test/run tap';
my $zk = ZooKeeper->new;
my %settings = (
	'zklock.session_timeout' => '60s',
	'zklock.connection_timeout' => '3min',
	'zklock.linger' => '1h');
my ($node_a, $node_b) = map { ZklockNode->started($_, $zk, %settings) } qw(a b);
my ($a1, $a2, $b1) = map { $_->backend } $node_a, $node_a, $node_b;

sub acquire { my ($quantity, $timeout) = @_; return "SELECT zk_semaphore_acquire('/two', 2, '$timeout', $quantity)"; }
my $release = q{SELECT zk_semaphore_release('/two')};

# a1 holds the lease that looks.  That of a2 would linger, had it not heard that somebody waits.
$a1->query(acquire(1, '1min'));
my $looks = $zk->children('/zklock/two/leases')->[0];
$a2->query($_) foreach acquire(1, '1min'), $release;
$zk->wait_for_children('/zklock/two/leases', 1);
$a2->query(acquire(1, '1min'));

my $log = -s $node_a->logfile;
my $worker;
symlink 'stop', $node_a->data_dir . '/zklock.fault.lease-to-look' or die "symlink: $!";
$b1->send(acquire(2, '20s'));
$zk->wait_until(
	sub { ($worker) = slurp_file($node_a->logfile, $log) =~ /fault point "lease-to-look": process (\d+) shall stop\n/; return $worker; },
	'the watch to fire');
$zk->wait_until(sub { slurp_file("/proc/$worker/stat") =~ /^\d+ \(.*\) T / }, 'the worker to stand still');
is($a1->query($release), 't', 'the one that would have looked is released');
kill 'CONT', $worker;
$zk->wait_for_children('/zklock/two/leases', sub { my ($names) = @_; return @$names == 3 && !grep { $_ eq $looks } @$names; });
$a2->query($release);
is($b1->answer, 't', 'the other one hears that somebody waits');

$_->quit foreach $a1, $a2, $b1;
$_->stop foreach $node_a, $node_b;
done_testing();
