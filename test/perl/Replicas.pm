
=head1 NAME

Replicas - do the servers of an ensemble have the same tree?

=head1 SYNOPSIS

	my @differences = Replicas::differences(map { $_ => $zk->snapshot('/', $_) } 1, 2, 3);

Pure: a tree is a hash of paths, each with a hash of its stat and C<data>.

=over

=item Replicas::differences($server => $tree, ...)

A line for each path that not all servers have alike, saying which server has what.
What ZooKeeper keeps for itself, below F</zookeeper>, does not count.

=back

=cut

package Replicas;

use strict;
use warnings;

# The fields that make a znode, and those on which the numbers of its children depend.
my @fields = qw(czxid mzxid pzxid cversion ephemeralOwner data);
my %is_hexadecimal = map { $_ => 1 } qw(czxid mzxid pzxid ephemeralOwner);

sub differences
{
	my (%trees) = @_;
	my %paths = map { $_ => 1 } grep { !m{^/zookeeper(/|$)} } map { keys %$_ } values %trees;
	my @found;
	foreach my $path (sort keys %paths)
	{
		my %servers;
		push @{ $servers{ _text($trees{$_}{$path}) } }, $_ foreach sort keys %trees;
		push @found, "$path: " . join '; ', map { "$_ on " . join ', ', @{ $servers{$_} } } sort keys %servers
		  if keys %servers > 1;
	}
	return @found;
}

sub _text
{
	my ($znode) = @_;
	return 'no such znode' unless $znode;
	return join ' ', map { "$_=" . ($is_hexadecimal{$_} ? sprintf '0x%x', $znode->{$_} : $znode->{$_}) } @fields;
}

1;
