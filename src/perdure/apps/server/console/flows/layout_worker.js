// Lays a graph out in layers, away from the page: 500 nodes take seconds.
import { Graph, layout } from "../vendor/dagre.mjs";

const SPACE = { nodesep: 22, ranksep: 52, edgesep: 12, marginx: 16, marginy: 16 };

/** Returns the places of the nodes (their centre), and the points of the edges in their order. */
function placed({ nodes, edges, direction, width, height }) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ ...SPACE, rankdir: direction, acyclicer: "greedy" });
  for (const id of nodes) graph.setNode(id, { width, height });
  edges.forEach(([from, to], n) => graph.setEdge(from, to, {}, String(n)));
  layout(graph);
  return {
    nodes: nodes.map((id) => ({ x: graph.node(id).x, y: graph.node(id).y })),
    edges: edges.map(([from, to], n) => graph.edge(from, to, String(n)).points),
    width: graph.graph().width,
    height: graph.graph().height,
  };
}

onmessage = ({ data }) => {
  try {
    postMessage({ id: data.id, layout: placed(data) });
  } catch (error) {
    postMessage({ id: data.id, error: error.message });
  }
};
