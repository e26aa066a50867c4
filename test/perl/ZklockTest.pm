
=head1 NAME

ZklockTest - what a TAP test of zklock begins with

=head1 SYNOPSIS

	use ZklockTest;

	my $zk = ZooKeeper->new;
	my ($node_a, $node_b) = map { ZklockNode->started($_, $zk) } 'a', 'b';
	my ($a1, $b1) = map { $_->backend } $node_a, $node_b;

	$a1->query(acquire('/job'));
	is($b1->query(try('/job')), 'f');
	$b1->send(acquire('/job', '1min'));
	$a1->query(release('/job'));
	is($b1->answer, 't');

It exports all of L<Test::More> and L<PostgreSQL::Test::Utils>, loads L<ZklockNode> and
L<ZooKeeper>, and has the SQL of the mutex.  A test with an C<acquire> of its own says
C<use ZklockTest qw(!acquire)>.

=head1 FUNCTIONS

=over

=item acquire($path, $timeout), try($path), release($path), held($path), token($path)

The statement, for a L<ZklockBackend> to execute.  Without C<$timeout> it waits without a limit.

=back

=cut

package ZklockTest;

use strict;
use warnings;

use parent 'Exporter';

use Test::More;

use PostgreSQL::Test::Utils;

use ZklockNode;
use ZooKeeper;

our @EXPORT = (@Test::More::EXPORT, @PostgreSQL::Test::Utils::EXPORT, qw(acquire try release held token));

# Only a test with these words in its name needs the build that has fault points.
$ENV{TEMP_CONFIG} = $ENV{FAULTS_CONFIG} // die 'no build with fault points: use test/run tap' if $0 =~ /fault_points/;

sub acquire
{
	my ($path, $timeout) = @_;
	return "SELECT zk_lock_acquire('$path'" . (defined $timeout ? ", '$timeout')" : ')');
}

sub try { my ($path) = @_; return acquire($path, '0'); }
sub release { my ($path) = @_; return "SELECT zk_lock_release('$path')"; }
sub held { my ($path) = @_; return "SELECT zk_lock_is_held('$path')"; }
sub token { my ($path) = @_; return "SELECT zk_lock_token('$path')"; }

1;
